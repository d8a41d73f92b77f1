// What a set measures about itself, as the scheduler of rank 0 is shown it: a test scheduler writes
// it down, and the report carries its lines.

#include "core/set/testing.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <filesystem>
#include <sstream>

namespace penstock {
namespace {

using testing::make_set;
using testing::with_ranks;
using Figures = std::map<std::string, std::vector<double>>;

constexpr double kMillisecond = 1000;

void rest(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

std::string scheme_of(const std::string& folder, const std::string& keys) {
  const std::string program = std::filesystem::canonical("/proc/self/exe").parent_path().string();
  return testing::scheme_text(
      keys + "\nscheduler = \"witness\"",
      fmt::format(
          "allow_insecure_paths = true\nplugin_path = [\"{}/plugins/{}\"]\n"
          "{}",
          program, folder,
          keys.find("topk") == std::string::npos ? "" : "[compressor.topk]\ndensity = 0.5\n"));
}

// "name value" lines of the scheduler, from the plan in force.
Figures figures_of(Set& set) {
  Figures figures;
  auto report = set.report();
  EXPECT_TRUE(report.ok());
  const auto json = nlohmann::json::parse(report.value());
  for (const auto& line : json.at("explanation")) {
    std::istringstream words(line.get<std::string>());
    std::string name;
    double value = 0;
    words >> name >> value;
    figures[name].push_back(value);
  }
  return figures;
}

// Two steps, so that rank 0's scheduler is shown them: `before` runs on each rank before its last
// gradient is ready, `after` when the results are there.
Figures two_steps(const std::string& scheme, const std::function<void(uint32_t)>& before,
                  const std::function<void(uint32_t)>& after) {
  Figures seen;
  with_ranks(2, scheme, [&](Runtime& runtime, uint32_t rank) {
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
            30 * kMillisecond);  // a mean: rank 0 waits 80, rank 1 nothing
}

TEST(Measure, AGradientIsReadyWhenTheSlowestRankHasIt) {
  const Figures seen = two_steps(
      scheme_of("witness", kPlain), [](uint32_t rank) { rest(rank == 1 ? 80 : 0); }, nothing);
  EXPECT_GE(seen.at("ready_us")[0], 80 * kMillisecond);
  EXPECT_GE(seen.at("backward_us")[0], 80 * kMillisecond);
}

TEST(Measure, TheLinkHasOneLine) {
  EXPECT_EQ(two_steps(scheme_of("witness", kPlain), nothing, nothing).at("links")[0], 1);
}

TEST(Measure, ACandidateThatNeverRanIsUnmeasuredAndNotFree) {
  const Figures seen = two_steps(scheme_of("witness", kTwoCandidates), nothing, nothing);
  EXPECT_GE(seen.at("encode_fixed_us")[0], 0);
  EXPECT_GE(seen.at("decode_fixed_us")[0], 0);
  EXPECT_LT(seen.at("encode_fixed_us")[1], 0);
  EXPECT_LT(seen.at("decode_fixed_us")[1], 0);
}

TEST(Measure, EachCompressorOfABucketIsMeasured) {
  const Figures seen = two_steps(scheme_of("mixed_witness", kTwoCandidates), nothing, nothing);
  for (double fixed : seen.at("encode_fixed_us")) EXPECT_GE(fixed, 0);
  for (double fixed : seen.at("decode_fixed_us")) EXPECT_GE(fixed, 0);
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
}  // namespace penstock
