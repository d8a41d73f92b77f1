// Ranks compare this text to check that their plugins have equal needs. It has everything that must
// be equal, and nothing that a rank decides alone.

#include "core/bucket/needs_text.hpp"

#include "core/bucket/testing.hpp"

#include <set>

namespace penstock::needs_text_test {
namespace {

using testing::exactly;
using testing::gathered;
using testing::pairs;
using testing::PaperBucket;
using testing::summed;
using testing::up_to;

// The text of a bucket with this gradient. Elements 2 to 11 of the gradient are an item.
std::string text_of(const std::function<void(ItemRun&)>& change,
                    const std::function<void(PaperBucket&)>& change_bucket = {}) {
  auto paper = std::make_unique<PaperBucket>(0, 2);
  ItemRun& item = paper->add("fc.weight", 20, {pairs(3)});
  item.range = {2, 10};
  change(item);
  if (change_bucket) change_bucket(*paper);
  // needs_text takes buckets in unique pointers, so the coding moves into such a bucket.
  std::vector<std::vector<std::unique_ptr<BucketRun>>> phases(1);
  phases[0].push_back(std::make_unique<BucketRun>(paper->context, paper->bucket.plan, 0));
  phases[0][0]->codings = std::move(paper->bucket.codings);
  phases[0][0]->ranks_at_once = paper->bucket.ranks_at_once;
  phases[0][0]->legs.emplace_back().kind = legs_of(PENSTOCK_ROUTE_FLAT)[0];
  return needs_text(phases);
}
const auto kAsItIs = [](ItemRun&) {};

TEST(NeedsText, HasALineForAnItemWithItsRoundsAndSections) {
  EXPECT_EQ(text_of(kAsItIs),
            "gradient 'fc.weight' [2, 12) in phase 0, leg 0: compressor 'topk' gather(up to 3 "
            "uint32 role 2, up to 3 float32 role 1); memory 'residual' work 0 scalars 0; "
            "float32\n");
  EXPECT_EQ(
      text_of([](ItemRun& item) {
        item.rounds = {summed({exactly(4, PENSTOCK_FLOAT16)}, PENSTOCK_REDUCE_MAX), gathered({})};
        item.rounds[1].result = PENSTOCK_RESULT_FINAL;
        item.rounds[1].flags = PENSTOCK_ROUND_ALL_PAYLOADS;
        item.compressor_wants = " state 3 x 4 float32";
        item.memory_wants = " state 10 x 1 float32";
        item.work_is = PENSTOCK_WORK_IS_STATE;
        item.n_scalars = 2;
        item.dtype = PENSTOCK_FLOAT16;
        item.passes_through = true;
      }),
      "gradient 'fc.weight' [2, 12) in phase 0, leg 0: compressor 'topk' sum by reduction "
      "3(4 float16 role 1) gather final() flags 2 state 3 x 4 float32; memory 'residual' "
      "work 1 scalars 2 state 10 x 1 float32; float16 as it is\n");
}

TEST(NeedsText, SaysWhereNoRoundIs) {
  EXPECT_NE(text_of([](ItemRun& item) {
              item.rounds.clear();
            }).find("compressor 'topk' no round; memory"),
            std::string::npos);
}

// A replicated state that is made from sums has equal bits only if the ranks add in one way.
TEST(NeedsText, SaysWhereBitsThatMustBeEqualAreMade) {
  const auto same_bits = [](ItemRun& item) {
    item.rounds = {summed({exactly(4)})};
    item.rounds[0].flags = PENSTOCK_ROUND_SAME_BITS;
  };
  EXPECT_NE(text_of(same_bits).find("; float32 on the CPU\n"), std::string::npos);
  const auto on_device = [](ItemRun& item) { item.of->place = &testing::place_on_paper(); };
  EXPECT_NE(text_of([&](ItemRun& item) {
              same_bits(item);
              on_device(item);
            }).find("; float32 on a device\n"),
            std::string::npos);
  EXPECT_EQ(text_of(on_device), text_of(kAsItIs));  // has no effect on other needs
}

TEST(NeedsText, DiffersWhereAnythingDiffersThatRanksMustHaveInCommon) {
  const std::vector<std::function<void(ItemRun&)>> changes{
      kAsItIs,
      [](ItemRun& item) { item.range.first = 3; },
      [](ItemRun& item) { item.range.numel = 9; },
      [](ItemRun& item) { item.gradient->name = "fc.bias"; },
      [](ItemRun& item) { item.rounds[0].combine = PENSTOCK_COMBINE_SUM; },
      [](ItemRun& item) { item.rounds[0].result = PENSTOCK_RESULT_FINAL; },
      [](ItemRun& item) { item.rounds[0].flags = 1; },
      [](ItemRun& item) { item.rounds[0].sections[0].capacity = 4; },
      [](ItemRun& item) { item.rounds[0].sections[1].dtype = PENSTOCK_FLOAT16; },
      [](ItemRun& item) { item.rounds[0].sections[1].role = PENSTOCK_ROLE_OTHER; },
      [](ItemRun& item) { item.rounds[0].sections[1].exact = true; },
      [](ItemRun& item) { item.rounds[0].sections.pop_back(); },
      [](ItemRun& item) { item.rounds.push_back(item.rounds[0]); },
      [](ItemRun& item) { item.compressor_wants = " state 1 x 1 float32"; },
      [](ItemRun& item) { item.memory_wants = " state 1 x 1 float32"; },
      [](ItemRun& item) { item.work_is = PENSTOCK_WORK_IS_SCRATCH; },
      [](ItemRun& item) { item.n_scalars = 1; },
      [](ItemRun& item) { item.dtype = PENSTOCK_FLOAT16; },
      [](ItemRun& item) { item.passes_through = true; }};
  std::set<std::string> texts;
  for (const auto& change : changes) texts.insert(text_of(change));
  EXPECT_EQ(texts.size(), changes.size());
  const auto other_phase = [](PaperBucket& paper) { paper.bucket.plan.phase = 1; };
  EXPECT_TRUE(texts.insert(text_of(kAsItIs, other_phase)).second);
  const auto other_leg = [](PaperBucket& paper) { paper.coding().leg = 1; };
  EXPECT_TRUE(texts.insert(text_of(kAsItIs, other_leg)).second);
  const auto in_slices = [](PaperBucket& paper) { paper.bucket.ranks_at_once = 1; };
  EXPECT_TRUE(texts.insert(text_of(kAsItIs, in_slices)).second);
  const auto all_at_once = [](PaperBucket& paper) { paper.bucket.ranks_at_once = 2; };
  EXPECT_EQ(text_of(kAsItIs, all_at_once), text_of(kAsItIs));
}

TEST(NeedsText, IsTheSameWhateverARankDecidesAlone) {
  EXPECT_EQ(text_of([](ItemRun& item) {
              item.folded = true;
              item.owner = 1;
              item.encodes = false;
              item.keeps = true;
            }),
            text_of(kAsItIs));
}

TEST(NeedsText, ListsItemsInTheOrderOfPhasesBucketsAndCodings) {
  EXPECT_EQ(needs_text({}), "");
  PaperBucket first(PENSTOCK_ROUTE_SHARD, 0, {0, 0}), second(0, 2);
  ItemRun& part = first.add("a", 1, {});
  first.add("b", 1, {});
  first.add_item(1, *part.of, part.range, {});
  second.add("c", 1, {});
  std::vector<std::vector<std::unique_ptr<BucketRun>>> phases(2);
  for (PaperBucket* paper : {&second, &first}) {
    auto& bucket = phases[paper == &first ? 0 : 1].emplace_back(
        std::make_unique<BucketRun>(paper->context, paper->bucket.plan, 0));
    bucket->codings = std::move(paper->bucket.codings);
    bucket->legs.emplace_back().kind = legs_of(PENSTOCK_ROUTE_FLAT)[0];
  }
  std::string order;
  const std::string text = needs_text(phases);
  for (size_t at = 0; (at = text.find("gradient '", at)) != std::string::npos; ++at)
    order += text[at + 10];
  EXPECT_EQ(order, "abac");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
}

TEST(StatesText, HasTheShapeAndTypeOfEachState) {
  penstock_state_declaration factor{}, kept{};
  factor.rows = 3;
  factor.cols = 4;
  factor.dtype = PENSTOCK_FLOAT32;
  kept.rows = uint64_t{1} << 33;
  kept.cols = 1;
  kept.dtype = PENSTOCK_UINT8;
  const penstock_state_declaration* const states[] = {&factor, &kept};
  EXPECT_EQ(states_text(states, 2), " state 3 x 4 float32 state 8589934592 x 1 uint8");
  EXPECT_EQ(states_text(nullptr, 0), "");
}

}  // namespace
}  // namespace penstock::needs_text_test
