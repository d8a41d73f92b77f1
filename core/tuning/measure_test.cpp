// The measurements of a set, as the scheduler of rank 0 sees them. A test scheduler records them,
// and the report contains its lines.

#include "core/set/witness_testing.hpp"

#include <fmt/format.h>
#include <support/sanitized.hpp>

#include <chrono>
#include <cmath>

namespace penstock::measure_test {
namespace {

using testing::Figures;
using testing::figures_of;
using testing::make_set;
using testing::with_ranks;

constexpr double kMillisecond = 1000;

void rest(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

std::string scheme_of(const std::string& folder, const std::string& keys) {
  const bool has_topk = keys.find("topk") != std::string::npos;
  return testing::scheme_text(keys + "\nscheduler = \"witness\"",
                              testing::test_plugins({folder, "slow"}) +
                                  (has_topk ? "[compressor.topk]\ndensity = 0.5\n" : ""));
}

// Runs two steps, so that rank 0's scheduler sees their times. `before` runs on each rank before
// its last gradient is ready, `after` when the results are there.
Figures two_steps(const std::string& scheme, const std::function<void(uint32_t)>& before,
                  const std::function<void(uint32_t)>& after, uint32_t n_ranks = 2) {
  Figures seen;
  with_ranks(n_ranks, scheme, [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, {{"first", {64}}, {"second", {32}}});
    ASSERT_OK(set.status());
    for (int step = 0; step < 2; ++step) {
      std::vector<float> first(64, 1.0f), second(32, 2.0f);
      ASSERT_OK(set.value()->gradient_ready(1, testing::view_of(second)));
      before(rank);
      ASSERT_OK(set.value()->gradient_ready(0, testing::view_of(first)));
      ASSERT_OK(set.value()->wait_all());
      after(rank);
      ASSERT_OK(set.value()->step_end(true));
    }
    if (rank == 0) seen = figures_of(*set.value());
  });
  return seen;
}

void nothing(uint32_t) {}

const char* const kPlain = "compressor = \"none\"\nmemory = \"none\"";
const char* const kTwoCandidates =
    "compressor = \"topk\"\ncandidates = [\"topk\", \"none\"]\nmemory = \"residual\"";

TEST(Measure, TheApplicationsOwnWorkAfterBackwardIsNotExposed) {
  const Figures seen = two_steps(scheme_of("witness", kPlain), nothing, [](uint32_t) { rest(60); });
  EXPECT_GE(seen.at("step_us")[0], 60 * kMillisecond);
  EXPECT_LT(seen.at("exposed_us")[0], 40 * kMillisecond);
}

TEST(Measure, WaitingForAnotherRankIsExposed) {
  const Figures seen = two_steps(
      scheme_of("witness", kPlain), [](uint32_t rank) { rest(rank == 1 ? 80 : 0); }, nothing);
  EXPECT_GE(seen.at("exposed_us")[0],
            30 * kMillisecond);  // the mean of 80 ms of rank 0 and 0 of rank 1
}

TEST(Measure, AGradientIsReadyWhenTheSlowestRankHasIt) {
  const Figures seen = two_steps(
      scheme_of("witness", kPlain), [](uint32_t rank) { rest(rank == 1 ? 80 : 0); }, nothing);
  EXPECT_GE(seen.at("ready_us")[0], 80 * kMillisecond);
  EXPECT_GE(seen.at("backward_us")[0], 80 * kMillisecond);
}

TEST(Measure, TheWaitForALateRankIsNoTimeOnTheWire) {
  const Figures seen = two_steps(
      scheme_of("witness", kPlain), [](uint32_t rank) { rest(rank == 1 ? 80 : 0); }, nothing);
  EXPECT_GE(seen.at("exchange_us")[0], 35 * kMillisecond);  // the mean of 80 and 0
  EXPECT_GE(seen.at("wait_us")[0], 30 * kMillisecond);
  EXPECT_LT(seen.at("wire_us")[0], 10 * kMillisecond);
  EXPECT_NEAR(seen.at("wire_us")[0] + seen.at("wait_us")[0], seen.at("exchange_us")[0], 1);
}

TEST(Measure, EachPhaseHasTimesOfItsOwn) {
  const Figures seen = two_steps(scheme_of("witness", "compressor = \"acpsgd\"\nmemory = \"none\""),
                                 nothing, nothing);
  EXPECT_EQ(seen.at("phase_first"), (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(seen.at("wire_us").size(), 2u);
}

TEST(Measure, TheLinkHasOneLine) {
  EXPECT_EQ(two_steps(scheme_of("witness", kPlain), nothing, nothing).at("links")[0], 1);
}

TEST(Measure, ACandidateThatNeverRanIsProbedAndNotFree) {
  const Figures seen = two_steps(scheme_of("witness", kTwoCandidates), nothing, nothing);
  EXPECT_GE(seen.at("encode_fixed_us")[1], 0);
  EXPECT_GE(seen.at("decode_fixed_us")[1], 0);
}

TEST(Measure, EachCompressorOfABucketIsMeasured) {
  const Figures seen = two_steps(scheme_of("mixed_witness", kTwoCandidates), nothing, nothing);
  for (double fixed : seen.at("encode_fixed_us")) EXPECT_GE(fixed, 0);
  for (double fixed : seen.at("decode_fixed_us")) EXPECT_GE(fixed, 0);
}

TEST(Measure, TimesOfTheForwardAreTheFrontends) {
  Figures seen;
  with_ranks(2, scheme_of("witness", kPlain), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, {{"first", {64}}, {"second", {32}}, {"third", {1}}});
    ASSERT_OK(set.status());
    const std::vector<double> use{0, rank == 0 ? 20.0 : 40.0, rank == 0 ? 5.0 : -1.0};
    EXPECT_EQ(set.value()->forward_times({use.data(), 2}, 100).code(), Code::invalid_argument);
    for (int step = 0; step < 2; ++step) {
      std::vector<std::vector<float>> gradients{std::vector<float>(64), std::vector<float>(32),
                                                std::vector<float>(1)};
      ASSERT_OK(set.value()->forward_times(use, 100 + 100 * step));
      ASSERT_OK(testing::run_step(*set.value(), gradients));
    }
    if (rank == 0) seen = figures_of(*set.value());
  });
  EXPECT_EQ(seen.at("forward_us"), (std::vector<double>{0, 30, -1}));  // one rank did not use it
  EXPECT_EQ(seen.at("whole_forward_us")[0], 150);
}

// ---- expected times ----

std::string text_of(const Figures& figures) {
  std::string text;
  for (const auto& [name, values] : figures)
    text += fmt::format("{} {}\n", name, fmt::join(values, " "));
  return text;
}

struct PutIn {
  std::string name;
  double value = 0;
  size_t index = 0;
};

// Other load on the machine makes times longer. So each figure must be right in one try at least,
// because a wrong figure would be wrong in every try. Under a sanitizer times are not checked.
::testing::AssertionResult are_seen(std::vector<PutIn> missing,
                                    const std::function<Figures()>& figures_of_a_try) {
  const auto is_near = [](double seen, double put_in) {
    return std::abs(seen / put_in - 1) <= 0.05;
  };
  Figures seen;
  for (int tries = 0; tries < (test::kSanitized ? 1 : 12) && !missing.empty(); ++tries) {
    seen = figures_of_a_try();
    std::erase_if(missing, [&](const PutIn& figure) {
      return is_near(seen.at(figure.name)[figure.index], figure.value);
    });
  }
  if (missing.empty() || test::kSanitized) return ::testing::AssertionSuccess();
  auto failure = ::testing::AssertionFailure();
  for (const PutIn& figure : missing)
    failure << fmt::format("{}[{}] was put in as {}\n", figure.name, figure.index, figure.value);
  return failure << "the last try saw\n" << text_of(seen);
}

// A simulated link with 2 ms per message and 20 ns per byte.
TEST(Measure, TheLinesOfALinkAreWhatWasPutIn) {
  const std::string link = "[collective.loopback]\nlatency_us = 2000\nus_per_byte = 0.02\n";
  std::vector<PutIn> put_in{{"links", 1}};
  for (const uint32_t pattern :
       {PENSTOCK_ALL_REDUCE, PENSTOCK_REDUCE_SCATTER, PENSTOCK_ALL_GATHER}) {
    const std::string line = fmt::format("line.{}.{}", uint32_t{PENSTOCK_LEVEL_WORLD}, pattern);
    const int large = pattern == PENSTOCK_ALL_GATHER ? 16384 : 32768;  // from two ranks
    put_in.push_back({line + ".0.alpha_us", 2000});
    put_in.push_back({fmt::format("{}.{}.beta_us_per_byte", line, large), 0.02});
  }
  EXPECT_TRUE(are_seen(
      put_in, [&] { return two_steps(scheme_of("witness", kPlain) + link, nothing, nothing); }));
}

// One call takes 1000 us and 50 us per element to encode, and half of that to decode. The
// compressor is first a candidate that never runs, measured only by its probes, and then a
// compressor that runs.
TEST(Measure, WhatACompressorTakesIsWhatWasPutIn) {
  const std::string names[] = {"none", "identity-c"};
  for (const size_t candidate : {1u, 0u}) {
    const std::string keys =
        fmt::format("compressor = \"{0}\"\ncandidates = [\"{0}\", \"{1}\"]\nmemory = \"none\"",
                    names[1 - candidate], names[candidate]);
    EXPECT_TRUE(are_seen({{"encode_fixed_us", 1000, candidate},
                          {"encode_per_element_us", 50, candidate},
                          {"decode_fixed_us", 500, candidate},
                          {"decode_per_element_us", 25, candidate}},
                         [&] { return two_steps(scheme_of("witness", keys), nothing, nothing); }));
  }
}

// Rank 1 takes 80 ms from its first gradient to its last. The results come 20 ms later. The part of
// an exchange in which a rank waits for a late rank counts as a wait.
TEST(Measure, TheTimesOfAStepAreWhatWasPutIn) {
  constexpr double kLate = 80 * kMillisecond, kLink = 20 * kMillisecond;
  const std::string link = "[collective.loopback]\nlatency_us = 20000\n";
  EXPECT_TRUE(are_seen({{"backward_us", kLate},
                        {"ready_us", kLate},
                        {"wire_us", kLink},
                        {"wait_us", kLate / 2},
                        {"exchange_us", kLink + kLate / 2},
                        {"exposed_us", kLink + kLate / 2},
                        {"step_us", kLink + kLate}},
                       [&] {
                         return two_steps(
                             scheme_of("witness", kPlain) + link,
                             [](uint32_t rank) { rest(rank == 1 ? 80 : 0); }, nothing);
                       }));
}

// Four ranks on two hosts. The local level has the two ranks of a host, the cross level the first
// rank of each host.
TEST(Measure, EachLevelHasItsLines) {
  const std::string hosts = "[collective.loopback]\nhosts = \"0,0,1,1\"\n";
  const Figures seen = two_steps(scheme_of("witness", kPlain) + hosts, nothing, nothing, 4);
  EXPECT_EQ(seen.at("links")[0], 3);
  for (const uint32_t level : {PENSTOCK_LEVEL_WORLD, PENSTOCK_LEVEL_LOCAL, PENSTOCK_LEVEL_CROSS})
    EXPECT_TRUE(
        seen.contains(fmt::format("line.{}.{}.0.alpha_us", level, uint32_t{PENSTOCK_ALL_REDUCE})))
        << level;
}

TEST(Measure, TheModelKnowsWhatTheTransportMoves) {
  const Figures seen = two_steps(scheme_of("witness", kPlain), nothing, nothing);
  EXPECT_EQ(seen.at("gathered_bytes")[0], 100);  // to the only other rank
}

// ---- the line ----

TEST(Line, OfOneSizeIsAllFixed) {
  FittedLine line;
  for (int i = 0; i < 3; ++i) line.add(100, 7);
  EXPECT_EQ(line.fixed(), 7);
  EXPECT_EQ(line.per_element(), 0);
}

TEST(Line, GoesThroughWhatWasSeen) {
  FittedLine line;
  for (double x : {10.0, 50.0, 90.0}) line.add(x, 3 + 0.5 * x);
  EXPECT_NEAR(line.fixed(), 3, 1e-9);
  EXPECT_NEAR(line.per_element(), 0.5, 1e-9);
}

TEST(Line, HasNoNegativePart) {
  FittedLine falling, low;
  falling.add(10, 9);
  falling.add(20, 1);
  EXPECT_EQ(falling.per_element(), 0);
  low.add(10, 0);
  low.add(20, 30);
  EXPECT_EQ(low.fixed(), 0);
}

}  // namespace
}  // namespace penstock::measure_test
