// Ranks whose data ends earlier than the data of the other ranks: their contribution, their
// memories' states, and how all ranks go on.

#include "core/set/training_testing.hpp"
#include "tests/support/worlds.hpp"

#include <mutex>
#include <thread>

namespace penstock::join_test {
namespace {

using testing::make_set;
using testing::run_step;
using testing::scheme_text;
using testing::view_of;
using testing::with_ranks;

using Values = std::vector<std::vector<float>>;

const std::vector<testing::GradientShape> kShapes{{"weight", {16, 12}}, {"bias", {16}}};

Values gradients_of(uint32_t rank, uint64_t step) {
  return {test::heavy_tailed(192, 10 * step + rank), test::heavy_tailed(16, 500 + step + rank)};
}

uint32_t join(Runtime& runtime) {
  uint32_t last = PENSTOCK_NO_RANK;
  const Status status = runtime.join(0, last);
  EXPECT_TRUE(status.ok()) << status.message();
  return last;
}

// Rank r has data for 2 + 2 r steps. In other steps its gradients are absent, or the rank has
// joined. Has the results of every step on the last rank, and of the two later steps on rank 0.
struct Trained {
  std::vector<Values> results;
  std::vector<std::string> states;  // of each rank, at the end
};
Trained train(uint32_t size, const std::string& scheme, bool joins) {
  Trained trained;
  trained.states.resize(size);
  const uint64_t longest = 2 * size;
  with_ranks(size, scheme, [&](Runtime& runtime, uint32_t rank) {
    auto made = make_set(runtime, kShapes);
    ASSERT_OK(made.status());
    Set& set = *made.value();
    const auto outcome_of = [](uint64_t step) -> uint32_t {
      return step % 3 == 1 ? PENSTOCK_STEP_FORGOTTEN : PENSTOCK_STEP_APPLIED;
    };
    const auto step_of = [&](uint64_t step) {
      Values gradients = gradients_of(rank, step);
      const double rate = 0.1 / double(1 + step);
      for (size_t i = 0; i < gradients.size(); ++i) ASSERT_OK(set.learning_rate(i, rate));
      if (step < 2 + 2 * rank || step >= longest) {
        ASSERT_OK(run_step(set, gradients, outcome_of(step)));
      } else {
        ASSERT_OK(set.wait_all());
        ASSERT_OK(set.step_end(outcome_of(step)));
      }
      if (rank + 1 == size) trained.results.push_back(gradients);
    };
    for (uint64_t step = 0; step < (joins ? 2 + 2 * rank : longest); ++step) step_of(step);
    if (joins) {
      EXPECT_EQ(join(runtime), size - 1);
    }
    for (uint64_t step = longest; step < longest + 2; ++step) step_of(step);
    ASSERT_OK(set.save(trained.states[rank]));
  });
  return trained;
}

void expect_absence(uint32_t size, const std::string& keys, const std::string& tables = "") {
  const std::string scheme = scheme_text(keys, tables);
  const Trained absent = train(size, scheme, false), joined = train(size, scheme, true);
  ASSERT_EQ(joined.results.size(), absent.results.size()) << keys;
  for (size_t step = 0; step < absent.results.size(); ++step)
    EXPECT_EQ(joined.results[step], absent.results[step]) << keys << ", step " << step;
  EXPECT_TRUE(joined.states == absent.states) << keys;
}

class JoinOf : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, JoinOf, test::worlds({1, 2, 3, 4}));

TEST_P(JoinOf, StepsOfOthersAreThoseOfARankWhoseGradientsAreAbsentToTheBit) {
  expect_absence(GetParam(), "compressor = \"none\"");
  expect_absence(GetParam(), "compressor = \"topk\"\nmemory = \"residual\"");
  expect_absence(GetParam(), "compressor = \"topk\"\nmemory = \"dgc\"");
  expect_absence(GetParam(), "compressor = \"powersgd\"\nmemory = \"residual\"");
  expect_absence(GetParam(), "compressor = \"acpsgd\"\nmemory = \"residual\"");
}

TEST_P(JoinOf, RoutesWithOwnersGoOnThroughTheRanksThatHaveJoined) {
  const std::string hosts[] = {"0", "0,1", "0,0,1", "0,0,1,1"};
  const std::string tables =
      fmt::format("[collective.loopback]\nhosts = \"{}\"\n", hosts[GetParam() - 1]);
  for (const char* route : {"hierarchical", "shard"})
    expect_absence(GetParam(),
                   fmt::format("scheduler = \"wfbp\"\nroute = \"{}\"\ncompressor = \"topk\"\n"
                               "memory = \"residual\"",
                               route),
                   tables);
}

TEST_P(JoinOf, SwitchesHappenAtTheirStepOnEveryRank) {
  expect_absence(GetParam(), "compressor = \"topk\"\nmemory = \"residual\"",
                 "\n[[switch]]\nat_step = 3\nset = { scheme.compressor = \"none\", scheme.memory = "
                 "\"none\" }\n");
}

TEST(Join, NothingThatARankKeptIsLost) {
  constexpr uint32_t kSize = 3;
  constexpr uint64_t kLongest = 6;
  std::vector<double> got(192), given(192);
  std::mutex mutex;
  const std::string scheme = scheme_text("compressor = \"topk\"\nmemory = \"residual\"",
                                         "\n[compressor.topk]\ndensity = 0.05\n");
  with_ranks(kSize, scheme, [&](Runtime& runtime, uint32_t rank) {
    auto made = make_set(runtime, {kShapes.front()}, PENSTOCK_SET_SUM);
    ASSERT_OK(made.status());
    for (uint64_t step = 0; step < (rank == 2 ? kLongest : 2); ++step) {
      Values gradients{gradients_of(rank, step)[0]};
      const std::lock_guard lock(mutex);
      for (size_t i = 0; i < 192; ++i) given[i] += gradients[0][i];
    }
    for (uint64_t step = 0; step < (rank == 2 ? kLongest : 2); ++step) {
      Values gradients{gradients_of(rank, step)[0]};
      ASSERT_OK(run_step(*made.value(), gradients));
      if (rank != 2) continue;
      const std::lock_guard lock(mutex);
      for (size_t i = 0; i < 192; ++i) got[i] += gradients[0][i];
    }
    EXPECT_EQ(join(runtime), 2u);
    // Steps without gradients, until every kept value was sent.
    for (uint64_t step = 0; step < 200; ++step) {
      Values nothing{std::vector<float>(192)};
      ASSERT_OK(run_step(*made.value(), nothing));
      if (rank != 2) continue;
      for (size_t i = 0; i < 192; ++i) got[i] += nothing[0][i];
    }
  });
  for (size_t i = 0; i < 192; ++i) EXPECT_NEAR(got[i], given[i], 1e-4) << i;
}

TEST(Join, SeveralSetsGoOnInTheOrderOfTheOthers) {
  with_ranks(3, scheme_text("compressor = \"none\""), [&](Runtime& runtime, uint32_t rank) {
    auto first = make_set(runtime, kShapes, 0, "first");
    auto second = make_set(runtime, kShapes, 0, "second");
    ASSERT_OK(first.status());
    ASSERT_OK(second.status());
    for (uint64_t step = 0; step < 4 * rank; ++step) {
      Values one = gradients_of(rank, step), other = gradients_of(rank, step);
      for (size_t i = 0; i < one.size(); ++i) {
        ASSERT_OK(first.value()->gradient_ready(i, view_of(one[i])));
        ASSERT_OK(second.value()->gradient_ready(i, view_of(other[i])));
      }
      ASSERT_OK(second.value()->wait_all());
      ASSERT_OK(first.value()->wait_all());
      ASSERT_OK(first.value()->step_end(true));
      ASSERT_OK(second.value()->step_end(true));
      EXPECT_EQ(one, other);
    }
    EXPECT_EQ(join(runtime), 2u);
  });
}

TEST(Join, InTheMiddleOfAStepIsRefused) {
  with_ranks(1, scheme_text("compressor = \"none\""), [&](Runtime& runtime, uint32_t) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    Values gradients = gradients_of(0, 0);
    ASSERT_OK(set.value()->gradient_ready(0, view_of(gradients[0])));
    uint32_t last = 0;
    const Status status = runtime.join(0, last);
    EXPECT_EQ(status.code(), Code::failed_precondition);
    EXPECT_NE(status.message().find("'model'"), std::string::npos) << status.message();
    ASSERT_OK(set.value()->wait_all());
    ASSERT_OK(set.value()->step_end(true));
    EXPECT_EQ(join(runtime), 0u);
  });
}

TEST(Join, AWaitThatIsTooShortLeavesTheRankJoined) {
  with_ranks(2, scheme_text("compressor = \"none\""), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    uint32_t last = 0;
    if (rank == 0) {
      ASSERT_OK(runtime.join(1'000, last));
      EXPECT_EQ(last, PENSTOCK_NO_RANK);
    }
    ASSERT_OK(runtime.control().agree("rank 0 has joined", "", {}, 20'000'000));
    if (rank == 1) {
      Values gradients = gradients_of(rank, 0);
      ASSERT_OK(run_step(*set.value(), gradients));
    }
    EXPECT_EQ(join(runtime), 1u);
  });
}

// A rank that joins asks the others where they are, at any time: also while they end a step.
TEST(Join, NoRankBeginsAStepThatIsNotMadeWhenTheOthersAreAskedAtTheEndOfAStep) {
  // The comparison of hashes makes the end of a step long.
  const std::string scheme = scheme_text("compressor = \"none\"", "hash_replicated_every = 1\n");
  with_ranks(2, scheme, [&](Runtime& runtime, uint32_t rank) {
    auto made = make_set(runtime, kShapes);
    ASSERT_OK(made.status());
    Set& set = *made.value();
    for (uint64_t round = 0; round < 20; ++round) {
      if (rank == 1) {
        const std::jthread asks([&](const std::stop_token& over) {
          while (!over.stop_requested()) {
            if (runtime.control().somebody_joined()) set.joined().tell_where();
            std::this_thread::sleep_for(std::chrono::microseconds(20));
          }
        });
        Values gradients = gradients_of(rank, round);
        ASSERT_OK(run_step(set, gradients));
      }
      EXPECT_EQ(join(runtime), 1u);
      ASSERT_FALSE(set.joined().under_way()) << "of rank " << rank << " in round " << round;
    }
  });
}

TEST(Join, ARankThatGivesUpEndsItByName) {
  with_ranks(2, scheme_text("compressor = \"none\""), [&](Runtime& runtime, uint32_t rank) {
    if (rank == 1) return runtime.give_up(aborted("the reason of rank 1"));
    uint32_t last = 0;
    const Status status = runtime.join(0, last);
    EXPECT_EQ(status.code(), Code::peer_failed);
    EXPECT_NE(status.message().find("the reason of rank 1"), std::string::npos) << status.message();
  });
}

}  // namespace
}  // namespace penstock::join_test
