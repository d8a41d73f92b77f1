// States that are saved by one number of ranks and loaded by another number.

#include "core/set/testing.hpp"

#include <testing/data.hpp>

#include <mutex>

namespace penstock::shards_test {
namespace {

using testing::make_set;
using testing::run_step;
using testing::scheme_text;
using testing::with_ranks;

using Values = std::vector<std::vector<float>>;

const std::vector<testing::GradientShape> kShapes{{"weight", {16, 12}}, {"bias", {16}}};
const std::string kTopK = scheme_text("compressor = \"topk\"\nmemory = \"residual\"",
                                      "\n[compressor.topk]\ndensity = 0.1\n");

Values gradients_of(uint32_t rank, uint64_t step) {
  return {test::heavy_tailed(192, 10 * step + rank), test::heavy_tailed(16, 500 + step + rank)};
}

// The saved state of each rank after `steps` steps, and the sums over ranks of the given and the
// sent values.
struct SavedRun {
  std::vector<std::string> shards;
  std::vector<double> given, got;
  std::vector<std::string_view> views() const { return {shards.begin(), shards.end()}; }
};
SavedRun save_by(uint32_t size, const std::string& scheme, uint64_t steps) {
  SavedRun run{std::vector<std::string>(size), std::vector<double>(192), std::vector<double>(192)};
  std::mutex mutex;
  with_ranks(size, scheme, [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes, PENSTOCK_SET_SUM);
    ASSERT_OK(set.status());
    for (uint64_t step = 0; step < steps; ++step) {
      Values gradients = gradients_of(rank, step);
      const std::vector<float> own = gradients[0];
      ASSERT_OK(run_step(*set.value(), gradients));
      const std::lock_guard lock(mutex);
      for (size_t i = 0; i < own.size(); ++i) {
        run.given[i] += own[i];
        if (rank == 0) run.got[i] += gradients[0][i];
      }
    }
    ASSERT_OK(set.value()->save(run.shards[rank]));
  });
  return run;
}

TEST(Shards, WhatWasKeptIsSentByAnyNumberOfRanks) {
  for (uint32_t before : {1, 2, 3, 4})
    for (uint32_t after : {1, 2, 3, 4}) {
      const std::string context = fmt::format("{} into {}", before, after);
      SavedRun run = save_by(before, kTopK, 3);
      with_ranks(after, kTopK, [&](Runtime& runtime, uint32_t rank) {
        auto set = make_set(runtime, kShapes, PENSTOCK_SET_SUM);
        ASSERT_OK(set.status());
        std::string said;
        ASSERT_OK(set.value()->load_shards(run.views(), said));
        EXPECT_NE(said.find(before == after ? "each its own" : "mass 'residual' of"),
                  std::string::npos)
            << said;
        for (uint64_t step = 0; step < 100; ++step) {  // until every kept value was sent
          Values nothing{std::vector<float>(192), std::vector<float>(16)};
          ASSERT_OK(run_step(*set.value(), nothing));
          for (size_t i = 0; rank == 0 && i < 192; ++i) run.got[i] += nothing[0][i];
        }
        penstock_counters counters{};
        set.value()->counters(counters);
        EXPECT_EQ(counters.steps, 100u);
      });
      for (size_t i = 0; i < 192; ++i)
        ASSERT_NEAR(run.got[i], run.given[i], 1e-4) << context << ", element " << i;
    }
}

TEST(Shards, FactorsAreThoseOfEveryRankAndTrainingGoesOn) {
  const std::string scheme =
      scheme_text("compressor = \"powersgd\"\nmemory = \"residual\"",
                  "hash_replicated_every = 1\n[compressor.powersgd]\nrank = 1\n");
  const SavedRun run = save_by(2, scheme, 3);
  with_ranks(3, scheme, [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes, PENSTOCK_SET_SUM);
    ASSERT_OK(set.status());
    std::string said;
    ASSERT_OK(set.value()->load_shards(run.views(), said));
    EXPECT_NE(said.find("replicated"), std::string::npos) << said;
    for (uint64_t step = 3; step < 6; ++step) {
      Values gradients = gradients_of(rank, step);
      ASSERT_OK(run_step(*set.value(), gradients));
    }
  });
}

TEST(Shards, ThatAreNotWholeOrRefuseAreAnErrorOnEveryRankAndTheSetGoesOn) {
  const SavedRun run = save_by(2, kTopK, 2), later = save_by(2, kTopK, 3);
  const auto refuses = [&](const std::string& scheme, std::vector<std::string_view> shards,
                           Code code, std::string_view word) {
    with_ranks(3, scheme, [&](Runtime& runtime, uint32_t rank) {
      auto set = make_set(runtime, kShapes, PENSTOCK_SET_SUM);
      ASSERT_OK(set.status());
      std::string said;
      const Status status = set.value()->load_shards(shards, said);
      EXPECT_EQ(status.code(), code) << status.message();
      EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
      Values gradients = gradients_of(rank, 0);
      ASSERT_OK(run_step(*set.value(), gradients));
    });
  };
  refuses(kTopK, {run.shards[0]}, Code::mismatch, "shard 0 of 1");
  refuses(kTopK, {run.shards[1], run.shards[0]}, Code::mismatch, "in rank order");
  refuses(kTopK, {run.shards[0], later.shards[1]}, Code::mismatch, "of one step");
  refuses(kTopK, {run.shards[0], "short"}, Code::invalid_argument, "shard 1");
  const std::string ef21 = scheme_text("compressor = \"topk\"\nmemory = \"ef21\"");
  const SavedRun shifts = save_by(2, ef21, 2);
  refuses(ef21, shifts.views(), Code::failed_precondition, "its plugin declares");
}

TEST(Shards, OthersThanOnOtherRanksAreAMismatch) {
  const SavedRun run = save_by(2, kTopK, 2), other = save_by(2, kTopK, 3);
  with_ranks(3, kTopK, [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes, PENSTOCK_SET_SUM);
    ASSERT_OK(set.status());
    std::string said;
    EXPECT_EQ(set.value()->load_shards((rank == 1 ? other : run).views(), said).code(),
              Code::mismatch);
  });
}

}  // namespace
}  // namespace penstock::shards_test
