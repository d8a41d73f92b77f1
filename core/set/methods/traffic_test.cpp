// Compares the bytes that a set moves with explicit formulas. If a scheme moves more than no
// compression would, rank 0 must warn.

#include "core/fit/traffic.hpp"
#include "core/set/testing.hpp"
#include "tests/support/worlds.hpp"

#include <testing/data.hpp>

#include <nlohmann/json.hpp>

namespace penstock::traffic_test {
namespace {

using testing::make_set;
using testing::run_step;
using testing::scheme_text;
using testing::with_ranks;

constexpr uint64_t kElements = 4096;
const std::vector<testing::GradientShape> kShapes{{"weight", {kElements}}};

penstock_counters counters_of(const Set& set) {
  penstock_counters counters{};
  counters.struct_size = sizeof counters;
  set.counters(counters);
  return counters;
}

// Steps of one large gradient on every rank. The outcome has the counters of rank 0 and the log.
struct Outcome {
  penstock_counters counters{};
  nlohmann::json report;
  std::string log;
};
Outcome run_of(uint32_t ranks, const std::string& scheme, uint64_t steps) {
  Outcome run;
  ::testing::internal::CaptureStderr();
  with_ranks(ranks, scheme, [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    for (uint64_t step = 0; step < steps; ++step) {
      std::vector<std::vector<float>> gradients{test::heavy_tailed(kElements, 10 * step + rank)};
      ASSERT_OK(run_step(*set.value(), gradients));
    }
    if (rank != 0) return;
    run.counters = counters_of(*set.value());
    auto report = set.value()->report();
    ASSERT_OK(report.status());
    run.report = nlohmann::json::parse(report.value());
  });
  run.log = ::testing::internal::GetCapturedStderr();
  return run;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string topk(const std::string& density, const std::string& tables = "") {
  return scheme_text("compressor = \"topk\"\nmemory = \"residual\"",
                     "[compressor.topk]\ndensity = " + density + "\n" + tables);
}

const std::string kWide = "\nvalue_type = \"fp32\"";  // behind a density

class Ranks : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Ranks, test::worlds({1, 2, 3, 4}));

TEST_P(Ranks, AGatherIsCountedOnceForEachRankItGoesTo) {
  const uint64_t ranks = GetParam();
  const Outcome run = run_of(GetParam(), topk("0.01"), 3);
  EXPECT_GT(run.counters.payload_bytes, 3u * 41 * 3);  // a byte of an index, and two of a value
  EXPECT_LT(run.counters.payload_bytes, 3u * 41 * 5);  // headers and zeros
  EXPECT_EQ(run.counters.moved_bytes, (ranks - 1) * run.counters.payload_bytes);
}

TEST_P(Ranks, AnAllReduceIsCountedAsItsTwoHalves) {
  const uint64_t ranks = GetParam();
  const Outcome run = run_of(GetParam(), scheme_text("compressor = \"none\""), 4);
  const double handed_over = 4.0 * double(kElements) * 4;
  EXPECT_EQ(double(run.counters.payload_bytes), handed_over);
  EXPECT_NEAR(double(run.counters.moved_bytes), 2 * double(ranks - 1) / double(ranks) * handed_over,
              2);  // rounded up to bytes once per message
  EXPECT_NEAR(double(run.counters.dense_moved_bytes), double(run.counters.moved_bytes), 4);
  EXPECT_EQ(run.report["counters"]["moved_bytes"], run.counters.moved_bytes);
  EXPECT_EQ(run.report["counters"]["dense_moved_bytes"], run.counters.dense_moved_bytes);
}

TEST(Traffic, TheTwoHalvesOfRouteSplitMoveWhatOneAllReduceDoes) {
  for (const char* keys : {"scheduler = \"dear\"", "scheduler = \"fusion\""})
    with_ranks(4, scheme_text(keys), [&](Runtime& runtime, uint32_t) {
      auto set = make_set(runtime, kShapes, PENSTOCK_SET_DEFERRED_UPDATE);
      ASSERT_OK(set.status());
      std::vector<std::vector<float>> gradients{std::vector<float>(kElements, 1)};
      ASSERT_OK(run_step(*set.value(), gradients));
      const penstock_counters counters = counters_of(*set.value());
      // The element that counts ranks with non-finite gradients travels too.
      EXPECT_NEAR(double(counters.moved_bytes), 1.5 * 4 * double(kElements), 16) << keys;
    });
}

TEST(Traffic, ASparseAllReduceCountsWhatItsOwnMessagesMove) {
  const std::string scheme =
      "[scheme]\ncompressor = \"topk\"\nmemory = \"residual\"\ncollective = \"oktopk\"\n"
      "transport = \"loopback\"\n[compressor.topk]\ndensity = 0.05\n[runtime]\ndeadline_s = 20\n";
  const Outcome run = run_of(4, scheme, 3);
  EXPECT_GT(run.counters.moved_bytes, 0u);
  EXPECT_LT(run.counters.moved_bytes, run.counters.dense_moved_bytes);
}

TEST_P(Ranks, WhatIsPlannedOfCodedIndicesIsWhatIsCounted) {
  for (const std::string& density : {"0.02" + kWide, std::string("0.1"), std::string("0.5"),
                                     std::string("0.5\nvalue_type = \"sign\"")}) {
    const Outcome run = run_of(GetParam(), topk(density), 5);
    const double planned = run.report["planned"]["moved_bytes_per_step"];
    EXPECT_NEAR(double(run.counters.moved_bytes) / 5, planned, 0.06 * planned) << density;
  }
}

// With half of the elements, positions travel as a bitmap: n / 8 bytes in addition to 2 n, to each
// of P - 1 ranks. Dense moves 8 (P - 1) / P n bytes, which is less from 4 ranks on.
TEST(Traffic, ASchemeThatMovesMoreThanDenseSaysSoOnceWithBothNumbers) {
  const Outcome run = run_of(4, topk("0.5" + kWide), 2);
  EXPECT_TRUE(contains(run.log,
                       "set 'model' moves more than without compression: each of 4 ranks "
                       "sends 24.6 kB a step without, and in every step 26.1 kB (more "
                       "from 4 ranks on)"))
      << run.log;
  EXPECT_EQ(run.log.find("moves more"), run.log.rfind("moves more")) << run.log;
  EXPECT_EQ(run.report["planned"]["moves_more_from_ranks"], 4);
  EXPECT_EQ(run.report["planned"]["moved_bytes_per_step"], 3 * (2 * kElements + 7 + kElements / 8));
}

TEST(Traffic, ASchemeThatMovesNoMoreSaysNothing) {
  for (const char* density : {"0.25", "0.01"}) {
    const Outcome run = run_of(4, topk(density), 12);
    EXPECT_FALSE(contains(run.log, "moves more")) << run.log;
  }
  EXPECT_FALSE(contains(run_of(2, scheme_text("compressor = \"none\""), 12).log, "moves more"));
  EXPECT_FALSE(contains(run_of(1, topk("1"), 12).log, "moves more"));
}

TEST(Traffic, SwitchesAreSaidWithTheStepsInWhichTheyMoveMore) {
  const std::string switches =
      "[[switch]]\nat_step = 0\nset = { compressor.topk.density = 0.5 }\n"
      "[[switch]]\nat_step = 100\nset = { compressor.topk.density = 0.48 }\n"
      "[[switch]]\nat_step = 200\nset = { compressor.topk.density = 0.01 }\n"
      "[[switch]]\nat_step = 300\nset = { compressor.topk.density = 1.0 }\n";
  const Outcome run = run_of(4, topk("0.01" + kWide, switches), 1);
  EXPECT_TRUE(contains(run.log, "in steps 0 to 99 26.1 kB (more from 4 ranks on)")) << run.log;
  EXPECT_TRUE(contains(run.log, "in steps 100 to 199")) << run.log;
  EXPECT_FALSE(contains(run.log, "in steps 200")) << run.log;
  EXPECT_TRUE(contains(run.log, "from step 300 on 50.7 kB (more from 2 ranks on)")) << run.log;
}

// Only the run shows how many entries pass a threshold.
TEST(Traffic, PayloadsOfNoPlannedSizeAreJudgedByTheFirstSteps) {
  const auto threshold = [](const char* value) {
    return scheme_text(
        "compressor = \"threshold\"\nmemory = \"residual\"",
        fmt::format("[compressor.threshold]\nthreshold = {}\ncapacity = 1.0\n", value));
  };
  const Outcome all = run_of(2, threshold("1e-9"), 12);
  EXPECT_TRUE(contains(all.log, "in its first 10 steps each of 2 ranks sent")) << all.log;
  EXPECT_TRUE(contains(all.log, "(more from 2 ranks on)")) << all.log;
  EXPECT_EQ(all.report["planned"]["sizes_are_open"], true);
  EXPECT_FALSE(contains(run_of(2, threshold("1e9"), 12).log, "moves more"));
}

// DGC's warm-up: the used part of the capacity varies a little.
TEST(Traffic, WhereOnlyTheMostIsPlannedTheWarningSaysUpTo) {
  const std::string scheme = scheme_text("compressor = \"dgc\"\nmemory = \"dgc\"",
                                         "[compressor.dgc]\ndensity = 0.5" + kWide + "\n");
  EXPECT_TRUE(contains(run_of(4, scheme, 1).log, "in every step up to 26.1 kB (more from 4"));
}

TEST(Traffic, WithoutAVolumeTheFormulasOfThePatternsHold) {
  const auto moved = [](uint32_t pattern, uint32_t ranks) {
    return moved_bytes(nullptr, nullptr, {ranks, 1}, pattern, 1200);
  };
  EXPECT_EQ(moved(PENSTOCK_ALL_REDUCE, 4), 1800);
  EXPECT_EQ(moved(PENSTOCK_REDUCE_SCATTER, 4), 900);
  EXPECT_EQ(moved(PENSTOCK_ALL_GATHER, 4), 3600);
  EXPECT_EQ(moved(PENSTOCK_SEND, 4), 1200);
  EXPECT_EQ(moved(PENSTOCK_ALL_REDUCE, 1), 0);
  EXPECT_EQ(moved(PENSTOCK_BARRIER, 4), 0);
}

}  // namespace
}  // namespace penstock::traffic_test
