// The effects of the needs that plugins state for the items of a bucket: rounds, scratch, `work`,
// and which gradients travel uncompressed.

#include "core/bucket/items.hpp"

#include "core/bucket/testing.hpp"

#include <functional>

namespace penstock::asked_items_test {
namespace {

using testing::PaperBucket;
using testing::ranks_on_one_host;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Plugins of this file, without states. By default they state the needs of `none`: one dense sum of
// the uncompressed gradient. A test changes the needs.
struct Asked : PaperBucket {
  explicit Asked(uint32_t route = PENSTOCK_ROUTE_FLAT)
      : PaperBucket(route, 1, ranks_on_one_host(2)) {
    compressor_table.struct_size = sizeof compressor_table;
    compressor_table.describe = [](void*, penstock_compressor_traits* traits) {
      traits->dtypes = PENSTOCK_DTYPE_BIT(PENSTOCK_FLOAT32);
      traits->device_types = uint64_t{1} << PENSTOCK_DEVICE_CPU;
      return static_cast<penstock_status*>(nullptr);
    };
    compressor_table.plan = [](void* self, uint32_t phase, uint32_t world,
                               const penstock_item* const* items, uint64_t n,
                               penstock_compressor_need* const* needs) {
      Asked& asked = *static_cast<Asked*>(self);
      EXPECT_EQ(phase, asked.bucket.plan.phase);
      EXPECT_EQ(world, 2u);
      asked.calls.push_back(n);
      for (uint64_t i = 0; i < n; ++i) asked.plan_one(*items[i], *needs[i]);
      return static_cast<penstock_status*>(nullptr);
    };
    memory_table.struct_size = sizeof memory_table;
    memory_table.plan = [](void* self, const penstock_item* const*, uint64_t n,
                           const penstock_compressor_need* const*,
                           penstock_memory_need* const* needs) {
      for (uint64_t i = 0; i < n; ++i) *needs[i] = static_cast<Asked*>(self)->memory_need;
      return static_cast<penstock_status*>(nullptr);
    };
    memory_need.struct_size = sizeof memory_need;
    compressor = std::move(CompressorInstance::borrow("asked", &compressor_table, this).value());
    memory = std::move(MemoryInstance::borrow("asked", &memory_table, this).value());
    other_memory = std::move(MemoryInstance::borrow("other", &memory_table, this).value());
  }
  void plan_one(const penstock_item& item, penstock_compressor_need& need) {
    penstock_section_bound& section = sections.emplace_back();
    section = {sizeof section,   item.numel, PENSTOCK_ROLE_VALUES,
               PENSTOCK_FLOAT32, 0,          PENSTOCK_SECTION_EXACT};
    section_pointers.push_back(&section);
    penstock_round& round = rounds.emplace_back();
    round = {sizeof round,
             &section_pointers.back(),
             1,
             PENSTOCK_COMBINE_SUM,
             PENSTOCK_RESULT_MEAN,
             0,
             0};
    round_pointers.push_back(&round);
    need.rounds = &round_pointers.back();
    need.n_rounds = 1;
    need.flags = PENSTOCK_NEED_LOSSLESS | PENSTOCK_NEED_LINEAR;
    change(item, need, round, section);
  }
  ItemRun& add(uint64_t numel) { return PaperBucket::add("w", numel, {}); }
  Status plan() { return plan_items(bucket, coding(), states, scratch); }

  std::function<void(const penstock_item&, penstock_compressor_need&, penstock_round&,
                     penstock_section_bound&)>
      change = [](const auto&, auto&, auto&, auto&) {};
  penstock_memory_need memory_need{};
  penstock_compressor compressor_table{};
  penstock_memory memory_table{};
  std::unique_ptr<MemoryInstance> other_memory;
  std::deque<penstock_section_bound> sections;
  std::deque<const penstock_section_bound*> section_pointers;
  std::deque<penstock_round> rounds;
  std::deque<const penstock_round*> round_pointers;
  std::vector<uint64_t> calls;
  ScratchNeed scratch;
};

TEST(AskedItems, OfOneCompressorAndMemoryAreAskedForTogether) {
  Asked asked;
  asked.bucket.plan.phase = 2;
  asked.add(4);
  asked.add(5).memory = asked.other_memory.get();
  ItemRun& third = asked.add(0);
  ASSERT_OK(asked.plan());
  std::sort(asked.calls.begin(), asked.calls.end());
  EXPECT_EQ(asked.calls, (std::vector<uint64_t>{1, 2}));
  ASSERT_EQ(third.rounds.size(), 1u);
  EXPECT_EQ(third.rounds[0].reduction, uint32_t{PENSTOCK_REDUCE_SUM});  // 0 means sum
  EXPECT_EQ(third.for_compressor.flags, uint32_t{PENSTOCK_ITEM_LOSSLESS});
}

TEST(AskedItems, OfAPhaseThatLeavesThemOutHaveNoRounds) {
  Asked asked;
  asked.bucket.only_compensates = true;
  ItemRun& item = asked.add(4);
  ASSERT_OK(asked.plan());
  EXPECT_TRUE(item.rounds.empty());
  EXPECT_FALSE(item.passes_through);
}

// The scratch of each item begins at a multiple of 64 bytes. A call contains items of every memory.
TEST(AskedItems, ScratchIsThatOfTheLargestCallOfAnyBucket) {
  Asked asked;
  asked.change = [](const auto& item, auto& need, auto&, auto&) {
    need.scratch_bytes = item.numel;
  };
  for (const uint64_t numel : {1, 64, 65, 0}) asked.add(numel);
  asked.coding().items[1].memory = asked.other_memory.get();
  ASSERT_OK(asked.plan());
  EXPECT_EQ(asked.scratch.bytes, 64u + 64 + 128);
  EXPECT_EQ(asked.scratch.compressor, "asked");
  EXPECT_EQ(asked.scratch.n_gradients, 4u);
  asked.scratch = {1000, "larger", 1};
  ASSERT_OK(asked.plan());
  EXPECT_EQ(asked.scratch.compressor, "larger");
}

TEST(AskedItems, WorkInScratchHasRoomForTheItem) {
  Asked asked;
  asked.memory_need.work_is = PENSTOCK_WORK_IS_SCRATCH;
  ItemRun& item = asked.add(5);
  ASSERT_OK(asked.plan());
  EXPECT_EQ(item.work.bytes(), 20u);
  EXPECT_FALSE(item.keeps);
}

TEST(AskedItems, OnACompositeMayNotHaveRoomForEveryEntryOfTheBucket) {
  Asked asked;
  Channel composite;
  asked.context.at(PENSTOCK_LEVEL_WORLD).composite.channel = &composite;
  asked.context.composite_name = "oktopk";
  asked.context.transport_name = "mpi";
  const penstock_section_bound bounds[] = {
      {sizeof bounds[0], 4, PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, 0, 0},
      {sizeof bounds[0], 4, PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, 0, 0}};
  const penstock_section_bound* const pointers[] = {&bounds[0], &bounds[1]};
  uint32_t scope = PENSTOCK_SCOPE_ITEM;
  asked.change = [&](const auto&, auto& need, auto& round, auto&) {
    need.scope = scope;
    need.flags = 0;
    round.sections = pointers;
    round.n_sections = 2;
    round.combine = PENSTOCK_COMBINE_GATHER;
  };
  ItemRun& item = asked.add(9);
  ASSERT_OK(asked.plan());
  EXPECT_TRUE(item.on_composite);
  scope = PENSTOCK_SCOPE_BUCKET;
  const Status status = asked.plan();
  EXPECT_EQ(status.code(), Code::failed_precondition);
  EXPECT_TRUE(contains(status.message(), "collective \"oktopk\" lets as many sums survive"));
  EXPECT_TRUE(contains(status.message(), "set collective = \"mpi\""));
}

// ---- Gradients that travel uncompressed ----

TEST(PlainItems, OfOneGradientAreNeverVoid) {
  for (const uint64_t numel : {0, 1, 5}) {
    Asked asked;
    ItemRun& item = asked.add(numel);
    ASSERT_OK(asked.plan());
    EXPECT_TRUE(item.passes_through) << numel;
    EXPECT_TRUE(item.of->is_never_void) << numel;
  }
}

// Above 1 MiB two copies cost more than a message for the flag.
TEST(PlainItems, OfSeveralGradientsAreThoseOfAMebibyteAndMore) {
  for (const bool is_large : {true, false}) {
    Asked asked;
    asked.add(4);
    asked.add((1 << 18) - 4 - (is_large ? 0 : 1));
    ASSERT_OK(asked.plan());
    for (const ItemRun& item : asked.coding().items) {
      EXPECT_EQ(item.passes_through, is_large);
      EXPECT_FALSE(item.of->is_never_void);
    }
  }
}

TEST(PlainItems, AreNoneWhereOneOfTheBucketIsNot) {
  for (const bool is_first : {true, false}) {
    Asked asked;
    asked.change = [](const auto& item, auto& need, auto&, auto&) {
      if (item.numel == 7) need.flags = PENSTOCK_NEED_LINEAR;
    };
    for (const uint64_t numel : {is_first ? 7 : 1 << 20, is_first ? 1 << 20 : 7}) asked.add(numel);
    ASSERT_OK(asked.plan());
    for (const ItemRun& item : asked.coding().items) EXPECT_FALSE(item.passes_through) << is_first;
  }
}

TEST(PlainItems, AreThoseThatNoPluginHasAPartIn) {
  const std::vector<std::function<void(Asked&)>> changes{
      [](Asked& asked) {
        asked.change = [](const auto&, auto& need, auto&, auto&) {
          need.flags = PENSTOCK_NEED_LOSSLESS;
        };
      },
      [](Asked& asked) {
        asked.change = [](const auto&, auto&, auto&, auto& section) { section.capacity = 3; };
      },
      [](Asked& asked) {
        asked.change = [](const auto&, auto&, auto&, auto& section) {
          section.dtype = PENSTOCK_FLOAT16;
        };
      },
      [](Asked& asked) {
        asked.change = [](const auto&, auto&, auto& round, auto&) {
          round.combine = PENSTOCK_COMBINE_GATHER;
        };
      },
      [](Asked& asked) { asked.memory_need.work_is = PENSTOCK_WORK_IS_SCRATCH; },
      [](Asked& asked) { asked.memory_need.flags = PENSTOCK_MEMORY_DECODED_RECORD; },
      [](Asked& asked) {
        asked.memory_table.measure = [](auto...) { return static_cast<penstock_status*>(nullptr); };
        asked.memory_need.n_scalars = 1;
      },
      [](Asked& asked) {
        asked.memory_table.finish = [](auto...) { return static_cast<penstock_status*>(nullptr); };
      },
      [](Asked& asked) { asked.bucket.pieces.front().widened = true; },
      [](Asked& asked) { asked.bucket.plan.route = PENSTOCK_ROUTE_SPLIT; }};
  for (size_t i = 0; i < changes.size(); ++i) {
    Asked asked;
    ItemRun& item = asked.add(4);
    changes[i](asked);
    ASSERT_OK(asked.plan());
    EXPECT_FALSE(item.passes_through) << i;
    EXPECT_FALSE(item.of->is_never_void) << i;
  }
}

}  // namespace
}  // namespace penstock::asked_items_test
