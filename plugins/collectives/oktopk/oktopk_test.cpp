// Ok-Topk on the loopback transport, against an oracle of plain loops over dense arrays.
#include "oktopk_member.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <random>

namespace penstock::test {
namespace {

// The whole method over dense arrays, all ranks in one place.
class Oracle {
 public:
  Oracle(const Shape& shape, uint32_t size) : shape_(shape), size_(size) {}

  // sums[position], kept[position] after one step.
  void step(uint64_t index, const std::vector<std::vector<Entries>>& ranks) {
    const uint64_t n = shape_.n_elements();
    sums.assign(n, 0.0f);
    touched.assign(n, false);
    kept.assign(n, false);
    for (const auto& items : ranks) {
      uint64_t first = 0;
      for (size_t i = 0; i < items.size(); ++i) {
        for (size_t e = 0; e < items[i].indices.size() && !items[i].absent; ++e) {
          sums[first + items[i].indices[e]] += items[i].values[e];
          touched[first + items[i].indices[e]] = true;
        }
        first += shape_.sizes[i];
      }
    }
    const uint64_t k = shape_.k();
    if (k >= n || size_ == 1) {
      kept = touched;
      return;
    }
    std::vector<uint64_t> candidates;
    for (uint64_t p = 0; p < n; ++p)
      if (sums[p] != 0) candidates.push_back(p);
    if (fresh || theta == 0 || index % static_cast<uint64_t>(shape_.threshold_period) == 0) {
      std::stable_sort(candidates.begin(), candidates.end(), [&](uint64_t a, uint64_t b) {
        return std::abs(sums[a]) > std::abs(sums[b]);
      });
      if (candidates.size() > k) candidates.resize(k);
      theta = candidates.empty() ? 0 : std::abs(sums[candidates.back()]);
      for (uint64_t p : candidates) kept[p] = true;
    } else {
      uint64_t count = 0;
      for (uint64_t p : candidates)
        if (std::abs(sums[p]) >= theta) kept[p] = true, ++count;
      if (3 * count < 2 * k) theta /= 1.025f, ++n_lowered;
      if (count > 2 * k)
        theta = 0, ++n_forgotten;
      else if (3 * count > 4 * k)
        theta *= 1.025f, ++n_raised;
    }
    fresh = false;
  }

  std::vector<float> sums;
  std::vector<bool> touched, kept;
  float theta = 0;
  bool fresh = true;
  int n_lowered = 0;
  int n_raised = 0;
  int n_forgotten = 0;

 private:
  const Shape shape_;
  uint32_t size_;
};

using Generator = std::function<Entries(uint64_t step, uint32_t rank, size_t item)>;

// At most `capacity` distinct random positions with values from `draw`.
Generator random_entries(const Shape& shape, std::function<float(std::mt19937&, uint64_t)> draw) {
  return [shape, draw](uint64_t step, uint32_t rank, size_t item) {
    std::mt19937 random(static_cast<uint32_t>(step * 1000 + rank * 10 + item));
    Entries entries;
    std::vector<uint32_t> all(shape.sizes[item]);
    std::iota(all.begin(), all.end(), 0u);
    std::shuffle(all.begin(), all.end(), random);
    all.resize(std::min<uint64_t>(shape.capacities[item], all.size()));
    std::sort(all.begin(), all.end());
    entries.indices = all;
    for (size_t e = 0; e < all.size(); ++e) entries.values.push_back(draw(random, step));
    return entries;
  };
}

float normal(std::mt19937& random, uint64_t) {
  return std::normal_distribution<float>()(random);
}

void compare_with_oracle(Member& member, const Oracle& oracle, const Shape& shape,
                         const std::vector<Entries>& mine) {
  uint64_t first = 0;
  for (size_t i = 0; i < shape.sizes.size(); first += shape.sizes[i++]) {
    const Payload& result = member.results[i];
    ASSERT_EQ(result.c.kind, static_cast<uint32_t>(PENSTOCK_PAYLOAD_SPARSE));
    ASSERT_EQ(result.c.rank, -1);
    uint64_t n = 0;
    for (uint64_t p = 0; p < shape.sizes[i]; ++p) {
      if (!oracle.kept[first + p]) continue;
      ASSERT_LT(n, result.count());
      ASSERT_EQ(result.index(n), p);
      ASSERT_EQ(result.value(n), oracle.sums[first + p]) << "not added in ascending rank order";
      ++n;
    }
    ASSERT_EQ(n, result.count());
    // Entries that no rank kept come back, bit by bit: nothing is lost.
    n = 0;
    for (size_t e = 0; e < mine[i].indices.size() && !mine[i].absent; ++e) {
      if (oracle.kept[first + mine[i].indices[e]]) continue;
      ASSERT_LT(n, member.refused[i].count());
      ASSERT_EQ(member.refused[i].index(n), mine[i].indices[e]);
      ASSERT_EQ(member.refused[i].value(n), mine[i].values[e]);
      ++n;
    }
    ASSERT_EQ(n, member.refused[i].count());
  }
}

struct Seen {
  int n_lowered = 0;
  int n_raised = 0;
  int n_forgotten = 0;
};

Seen check_against_oracle(uint32_t size, const Shape& shape, const Generator& generate,
                          uint64_t n_steps, uint64_t forget_at = ~0ull) {
  Seen seen;
  on_ranks(loopback(), size, [&](LoopbackRank& rank, uint32_t r) {
    Member member(rank, shape);
    Oracle oracle(shape, size);
    for (uint64_t step = 0; step < n_steps; ++step) {
      std::vector<std::vector<Entries>> all(size);
      for (uint32_t s = 0; s < size; ++s)
        for (size_t i = 0; i < shape.sizes.size(); ++i) all[s].push_back(generate(step, s, i));
      if (step == forget_at) {
        member.forget_states();
        oracle.fresh = true;
      }
      oracle.step(step, all);
      const Outcome outcome = member.step(step, all[r]);
      ASSERT_TRUE(outcome.ok()) << outcome.message;
      compare_with_oracle(member, oracle, shape, all[r]);
      if (::testing::Test::HasFailure()) FAIL() << "step " << step << ", rank " << r;
    }
    if (r == 0) seen = {oracle.n_lowered, oracle.n_raised, oracle.n_forgotten};
  });
  return seen;
}

const std::vector<uint32_t> kSizes{1, 2, 3, 4, 8};

TEST(OkTopk, EqualsTheOracleOverManyStepsInEveryWorld) {
  const Shape shape{{1000, 1, 257, 3001}, {20, 1, 5, 60}};
  for (uint32_t size : kSizes) check_against_oracle(size, shape, random_entries(shape, normal), 20);
}

TEST(OkTopk, TheThresholdFollowsWhenSumsGrowOrShrink) {
  const Shape shape{{2000}, {50}, 16, 32};
  const auto growing = [](std::mt19937& random, uint64_t step) {
    return normal(random, step) * std::pow(1.1f, static_cast<float>(step));
  };
  const auto shrinking = [](std::mt19937& random, uint64_t step) {
    return normal(random, step) * std::pow(0.7f, static_cast<float>(step));
  };
  EXPECT_GT(check_against_oracle(4, shape, random_entries(shape, growing), 15).n_raised, 5);
  EXPECT_GT(check_against_oracle(4, shape, random_entries(shape, shrinking), 15).n_lowered, 5);
}

TEST(OkTopk, AThresholdThatIsFarOffIsComputedInTheNextStep) {
  const Shape shape{{2000}, {50}, 32, 64};
  const auto jumping = [](std::mt19937& random, uint64_t step) {
    return normal(random, step) * (step < 3 ? 1.0f : 100.0f);
  };
  EXPECT_EQ(check_against_oracle(4, shape, random_entries(shape, jumping), 8).n_forgotten, 1);
}

TEST(OkTopk, AfterAStepOfZerosTheNextOneKeepsExactlyK) {
  const Shape shape{{2000}, {50}, 32, 64};
  const auto late = [](std::mt19937& random, uint64_t step) {
    return step == 0 ? 0.0f : normal(random, step);
  };
  const auto generate = random_entries(shape, late);
  on_ranks(loopback(), 4, [&](LoopbackRank& rank, uint32_t r) {
    Member member(rank, shape);
    ASSERT_TRUE(member.step(0, {generate(0, r, 0)}).ok());
    EXPECT_EQ(member.results[0].count(), 0u);
    ASSERT_TRUE(member.step(1, {generate(1, r, 0)}).ok());
    EXPECT_EQ(member.results[0].count(), 50u);
  });
}

TEST(OkTopk, TiesGoToTheLowerPosition) {
  const Shape shape{{300, 300}, {20, 20}, 1, 2};
  const auto few_values = [](std::mt19937& random, uint64_t) {
    return static_cast<float>(static_cast<int>(random() % 5) - 2);  // zeros and cancellation too
  };
  for (uint32_t size : kSizes)
    check_against_oracle(size, shape, random_entries(shape, few_values), 8);
}

TEST(OkTopk, AllEntriesMayLieInOneRegion) {
  const Shape shape{{5000}, {40}};
  const Generator crowded = [&](uint64_t step, uint32_t rank, size_t) {
    std::mt19937 random(static_cast<uint32_t>(step * 31 + rank));
    Entries entries;
    const uint32_t first = step < 5 ? 10 : 4900;  // and they move while the boundaries stay
    for (uint32_t i = 0; i < 40; ++i) {
      entries.indices.push_back(first + 2 * i);
      entries.values.push_back(normal(random, 0));
    }
    return entries;
  };
  for (uint32_t size : kSizes) check_against_oracle(size, shape, crowded, 8);
}

TEST(OkTopk, EmptyAndAbsentPayloadsCountAsNothing) {
  const Shape shape{{400, 100}, {12, 6}};
  const auto full = random_entries(shape, normal);
  const Generator gaps = [&](uint64_t step, uint32_t rank, size_t item) {
    Entries entries = full(step, rank, item);
    if (step == 3 || (rank + step) % 3 == 0) entries = {};  // in step 3 no rank has entries
    if ((rank + item) % 2 == 0 && step % 2 == 1) entries.absent = true;
    return entries;
  };
  for (uint32_t size : kSizes) check_against_oracle(size, shape, gaps, 9);
}

TEST(OkTopk, WithRoomForEverythingItIsTheDenseSumAndNothingIsRefused) {
  const Shape shape{{129, 64}, {129, 64}};
  for (uint32_t size : kSizes) check_against_oracle(size, shape, random_entries(shape, normal), 4);
}

TEST(OkTopk, LostSoftStatesAreMadeAnew) {
  const Shape shape{{1000}, {30}, 100, 100};
  check_against_oracle(4, shape, random_entries(shape, normal), 9, 5);
}

TEST(OkTopk, AMessageWithoutElementsIsDone) {
  const Shape shape{{0, 3}, {0, 0}};
  check_against_oracle(
      3, shape, [](uint64_t, uint32_t, size_t) { return Entries{}; }, 2);
}

TEST(OkTopk, SendsAtMostSixKWordsPerRankWhateverTheWorld) {
  const Shape shape{{20'000}, {1000}, 8, 64};
  const auto random = random_entries(shape, normal);
  const Generator same_each_step = [&](uint64_t, uint32_t rank, size_t item) {
    return random(0, rank, item);
  };
  for (uint32_t size : {2u, 3u, 4u, 8u})
    on_ranks(loopback(), size, [&](LoopbackRank& rank, uint32_t r) {
      Member member(rank, shape);
      ASSERT_TRUE(member.step(0, {same_each_step(0, r, 0)}).ok());
      ASSERT_EQ(member.results[0].count(), 1000u) << "the exact step keeps exactly k";
      sent_bytes = 0;
      ASSERT_TRUE(member.step(1, {same_each_step(1, r, 0)}).ok());
      const double words = static_cast<double>(sent_bytes) / 4;
      // Besides the entries only one count of two words goes to each peer.
      EXPECT_LE(words, 6.0 * 1000 * (size - 1) / size + 2 * size);
      EXPECT_GE(words, 2.0 * 1000 * (size - 1) / size) << "the survivors must have been sent";
    });
}

TEST(OkTopk, SeveralMessagesAreUnderWayTogether) {
  const Shape shape{{500}, {25}};
  const auto generate = random_entries(shape, normal);
  on_ranks(loopback(), 3, [&](LoopbackRank& rank, uint32_t r) {
    Member first(rank, shape);
    Member second(rank, shape);
    Oracle oracle(shape, 3);
    for (uint64_t step = 0; step < 6; ++step) {
      std::vector<std::vector<Entries>> all(3);
      for (uint32_t s = 0; s < 3; ++s) all[s].push_back(generate(step, s, 0));
      oracle.step(step, all);
      // Neighbouring ranks start the two members in opposite order and poll them unevenly.
      const bool swap = (r + step) % 2 == 0;
      Member& ahead = swap ? second : first;
      Member& behind = swap ? first : second;
      ASSERT_TRUE(ahead.begin(step, all[r], swap ? 2 : 1).ok());
      ASSERT_TRUE(behind.begin(step, all[r], swap ? 1 : 2).ok());
      Outcome outcome;
      bool ahead_done = false;
      bool behind_done = false;
      for (uint64_t i = 0; !ahead_done || !behind_done; ++i) {
        if (!ahead_done) ahead_done = ahead.poll(outcome);
        ASSERT_TRUE(outcome.ok()) << outcome.message;
        if (!behind_done && i % 3 == 0) behind_done = behind.poll(outcome);
        ASSERT_TRUE(outcome.ok()) << outcome.message;
        std::this_thread::yield();
      }
      compare_with_oracle(first, oracle, shape, all[r]);
      compare_with_oracle(second, oracle, shape, all[r]);
    }
  });
}

TEST(OkTopk, BadPayloadsOfTheOwnRankAreRefusedByName) {
  const Shape shape{{10}, {4}};
  on_ranks(loopback(), 1, [&](LoopbackRank& rank, uint32_t) {
    Member member(rank, shape);
    Outcome outcome = member.step(0, {{{3, 3}, {1, 2}}});
    EXPECT_EQ(outcome.code, PENSTOCK_INVALID_ARGUMENT);
    EXPECT_NE(outcome.message.find("'gradient' has index 3 at 1"), std::string::npos)
        << outcome.message;
    EXPECT_EQ(member.step(0, {{{3, 10}, {1, 2}}}).code, PENSTOCK_INVALID_ARGUMENT);
    member.payloads[0].c.kind = PENSTOCK_PAYLOAD_DENSE;
    EXPECT_TRUE(member.step(0, {{{3, 9}, {1, 2}}}).ok());
  });
}

TEST(OkTopk, PositionsOutsideTheRegionAreAnErrorThatNamesTheSender) {
  const Shape shape{{100}, {10}};
  on_ranks(loopback(), 2, [&](LoopbackRank& rank, uint32_t r) {
    if (r == 0) {
      Member member(rank, shape);
      const Outcome outcome = member.step(0, {{{1, 60}, {1.0f, 2.0f}}}, 0);
      EXPECT_EQ(outcome.code, PENSTOCK_INVALID_PAYLOAD) << outcome.message;
      EXPECT_NE(outcome.message.find("rank 1"), std::string::npos) << outcome.message;
      return;
    }
    // Rank 1 talks to the base by hand: boundaries as agreed, then an entry far out of region 0.
    uint64_t split = 60;
    auto boundaries = message_of(PENSTOCK_ALL_REDUCE, 0, PENSTOCK_UINT64);
    boundaries.send = boundaries.receive = &split;
    boundaries.count = 1;
    EXPECT_TRUE(rank.exchange(boundaries).ok());
    const uint64_t bad_pair = 0xfffffff0u;
    std::vector<uint64_t> send_counts{1, 0}, counts{10, 10}, offsets{0, 10}, room(20);
    auto scatter = message_of(PENSTOCK_ALL_TO_ALL, 1, PENSTOCK_UINT64);
    scatter.send = &bad_pair;
    scatter.count = 1;
    scatter.send_counts = send_counts.data();
    scatter.receive = room.data();
    scatter.receive_counts = counts.data();
    scatter.receive_offsets = offsets.data();
    EXPECT_TRUE(rank.exchange(scatter).ok());
  });
}

// Opens oktopk in a world of one on a transport whose description is changed.
penstock_status* open_on(LoopbackRank& rank, void (*describe)(penstock_collective_traits&),
                         bool with_base = true) {
  static void (*change)(penstock_collective_traits&) = nullptr;
  change = describe;
  penstock_collective changed = counting_base();
  changed.describe = [](void* self, penstock_collective_traits* traits) {
    penstock_status* status = real_base->describe(self, traits);
    change(*traits);
    return status;
  };
  penstock_base_channel base = base_of(rank);
  base.collective = &changed;
  const Instance<penstock_collective> oktopk(plugin().collective(), *plugin().module);
  const uint32_t zero = 0;
  penstock_group group{};
  group.struct_size = sizeof group;
  group.world_ranks = group.hosts = &zero;
  group.size = 1;
  penstock_channel* channel = nullptr;
  return oktopk.table().open(oktopk.self(), &group, with_base ? &base : nullptr, nullptr, 0,
                             &channel);
}

TEST(OkTopk, ATransportThatIsMissingOrDoesNotSufficeIsRefusedWithTheRemedy) {
  on_ranks(loopback(), 1, [](LoopbackRank& rank, uint32_t) {
    const auto ordered = [](penstock_collective_traits& traits) {
      traits.flags |= PENSTOCK_COLLECTIVE_ORDERED;
    };
    EXPECT_TRUE(fails_with(open_on(rank, ordered), PENSTOCK_UNIMPLEMENTED, "matches by tag"));
    const auto poor = [](penstock_collective_traits& traits) {
      traits.patterns &= ~PENSTOCK_PATTERN_BIT(PENSTOCK_ALL_TO_ALL);
    };
    EXPECT_TRUE(fails_with(open_on(rank, poor), PENSTOCK_UNIMPLEMENTED,
                           "scheme.transport lacks all-to-all; use transport = \"mpi\""));
    EXPECT_TRUE(fails_with(open_on(rank, ordered, false), PENSTOCK_INVALID_ARGUMENT,
                           "name one in scheme.transport"));
  });
}

TEST(OkTopk, VolumeIsSixKTimesPMinusOneOverP) {
  const Instance<penstock_collective> oktopk(plugin().collective(), *plugin().module);
  penstock_volume within{sizeof within, 0, 0, 0};
  penstock_volume between{sizeof between, 0, 0, 0};
  penstock_volume* const volumes[] = {&within, &between};
  const uint64_t k = 1000;
  PENSTOCK_EXPECT_OK(
      oktopk.table().volume(oktopk.self(), PENSTOCK_SPARSE_ALL_REDUCE, 2, 4, 8 * k, volumes));
  EXPECT_DOUBLE_EQ((within.bytes + between.bytes) / 4, 6.0 * k * 7 / 8);
  EXPECT_DOUBLE_EQ(within.startups + between.startups, 2 * 8 + 2 * 3);
}

}  // namespace
}  // namespace penstock::test
