// The information for the user about a set: the log lines at its start and end, the warning that
// names a gradient that is not finite, and the timeline.

#include "core/set/testing.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <set>

namespace penstock::words_test {
namespace {

using testing::make_set;
using testing::run_step;
using testing::scheme_text;
using testing::with_ranks;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

uint64_t count(std::string_view text, std::string_view part) {
  uint64_t n = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

const std::vector<testing::GradientShape> kShapes{{"first", {600}}, {"second", {400}}};

std::string logged(uint32_t ranks, const std::string& scheme,
                   const std::function<void(Runtime&, uint32_t)>& body) {
  ::testing::internal::CaptureStderr();
  with_ranks(ranks, scheme, body);
  return ::testing::internal::GetCapturedStderr();
}

// A property of a gradient that is not set, such as its bucket, must not appear as a number.
TEST(Disagreement, OnAGradientSaysWhatIsKnownOfIt) {
  with_ranks(2, scheme_text(""), [&](Runtime& runtime, uint32_t rank) {
    const auto set = make_set(runtime, {{"first", {600}}, {"second", {400 + int64_t{rank}}}});
    EXPECT_EQ(set.status().code(), Code::mismatch);
    const std::string_view said = set.status().message();
    EXPECT_TRUE(contains(said, "rank 0 has \"gradient 1 'second' float32 400\"")) << said;
    EXPECT_TRUE(contains(said, "rank 1 has \"gradient 1 'second' float32 401\"")) << said;
  });
}

TEST(InfoLines, SayThePlanAtTheStartAndTheOutcomeAtTheEndOnRank0) {
  const std::string log = logged(
      2, scheme_text("compressor = \"none\"\nscheduler = \"wfbp\"", "log_level = \"info\"\n"),
      [&](Runtime& runtime, uint32_t) {
        auto set = make_set(runtime, kShapes);
        ASSERT_OK(set.status());
        for (int step = 0; step < 3; ++step) {
          std::vector<std::vector<float>> gradients{std::vector<float>(600, 1),
                                                    std::vector<float>(400, 1)};
          ASSERT_OK(run_step(*set.value(), gradients));
        }
      });
  EXPECT_EQ(count(log,
                  "info [0/2] set: set 'model': configuration text; compressor none, memory "
                  "none, collective loopback, scheduler wfbp, route flat; 2 ranks on 1 hosts; "
                  "2 gradients of 4.00 kB in 2 buckets (wfbp: phase 0: 2 buckets"),
            1u)
      << log;
  EXPECT_EQ(count(log, "in a step each rank sends 4.00 kB, without compression 4.00 kB (100 %)"),
            1u)
      << log;
  EXPECT_EQ(count(log,
                  "set 'model' ended after 3 steps: rank 0 sent 12.0 kB, without compression "
                  "12.0 kB (100 %), and waited "),
            1u)
      << log;
  EXPECT_EQ(count(log, "; slowest is rank "), 1u) << log;
}

TEST(InfoLines, AreNotThereWithoutTheLevel) {
  const std::string log = logged(2, scheme_text(""), [&](Runtime& runtime, uint32_t) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
  });
  EXPECT_EQ(log, "");
}

// With fusion the gradients share a bucket, which is void. With wfbp each travels uncompressed.
TEST(NonFinite, TheRankWhereItBeganNamesItselfGradientAndStepOnce) {
  for (const char* scheduler : {"fusion", "wfbp"})
    for (const int64_t elements : {400, 300'000}) {
      const std::string log =
          logged(3, scheme_text(fmt::format("scheduler = \"{}\"", scheduler)),
                 [&](Runtime& runtime, uint32_t rank) {
                   auto set = make_set(runtime, {{"first", {600}}, {"second", {elements}}});
                   ASSERT_OK(set.status());
                   for (uint64_t step = 0; step < 6; ++step) {
                     const bool bad = rank == 1 && (step == 2 || step == 4);
                     const float value = bad ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
                     std::vector<std::vector<float>> gradients{
                         std::vector<float>(600, 1), std::vector<float>(size_t(elements), value)};
                     ASSERT_OK(run_step(*set.value(), gradients));
                     EXPECT_EQ(std::isnan(gradients[1][0]), step == 2 || step == 4);
                   }
                   auto report = set.value()->report();
                   ASSERT_OK(report.status());
                   EXPECT_EQ(nlohmann::json::parse(report.value())["counters"]["nonfinite_steps"],
                             rank == 1 ? 2 : 0);
                 });
      EXPECT_EQ(count(log, "is not finite"), 1u) << log;
      EXPECT_TRUE(contains(log,
                           "warning [1/3] set: set 'model': gradient 'second' of rank 1 is not "
                           "finite (NaN or infinite) in step 2"))
          << log;
    }
}

TEST(NonFinite, UnderALossScaleTheWarningSaysThatItIsUsual) {
  const std::string log = logged(1, scheme_text(""), [&](Runtime& runtime, uint32_t) {
    auto set = make_set(runtime, {{"x", {2}}});
    ASSERT_OK(set.status());
    ASSERT_OK(set.value()->grad_scale(65536));
    std::vector<std::vector<float>> gradients{{1, std::numeric_limits<float>::infinity()}};
    ASSERT_OK(run_step(*set.value(), gradients, false));
  });
  EXPECT_TRUE(contains(log, "loss scale of 65536: usual")) << log;
}

TEST(TimelineOfARun, HasBucketsWithNamesBackwardSchemeBytesAndOperations) {
  std::string folder = ::testing::TempDir() + "penstock-words-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/trace.json";
  with_ranks(2,
             scheme_text("compressor = \"topk\"\nmemory = \"residual\"\nscheduler = \"wfbp\"",
                         fmt::format("timeline = \"{}\"\n", path)),
             [&](Runtime& runtime, uint32_t) {
               auto set = make_set(runtime, kShapes);
               ASSERT_OK(set.status());
               for (int step = 0; step < 2; ++step) {
                 std::vector<std::vector<float>> gradients{std::vector<float>(600, 1),
                                                           std::vector<float>(400, 1)};
                 ASSERT_OK(run_step(*set.value(), gradients));
               }
               float value = 1;
               const int64_t shape = 1;
               penstock_tensor tensor{};
               tensor.struct_size = sizeof tensor;
               tensor.data = &value;
               tensor.shape = &shape;
               tensor.n_dims = 1;
               tensor.numel = 1;
               tensor.dtype = PENSTOCK_FLOAT32;
               tensor.device_type = PENSTOCK_DEVICE_CPU;
               penstock_operation_declaration declaration{};
               declaration.struct_size = sizeof declaration;
               declaration.name = str("loss");
               declaration.input = declaration.output = &tensor;
               declaration.prescale = declaration.postscale = 1;
               declaration.pattern = PENSTOCK_ALL_REDUCE;
               declaration.reduction = PENSTOCK_REDUCE_SUM;
               auto operation = runtime.operations().submit(declaration);
               ASSERT_OK(operation.status());
               ASSERT_OK(operation.value()->wait());
             });
  // Rank 0 writes to the unchanged path, as users of HOROVOD_TIMELINE expect.
  EXPECT_TRUE(std::filesystem::exists(path + ".rank1"));
  EXPECT_FALSE(std::filesystem::exists(path + ".rank0"));
  std::ifstream file(path);
  const auto trace = nlohmann::json::parse(file, nullptr, false);
  ASSERT_FALSE(trace.is_discarded());
  std::map<int, std::string> lanes;
  std::map<std::string, std::vector<nlohmann::json>> events;
  for (const auto& event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") lanes[event["tid"]] = event["args"]["name"];
    events[event["name"]].push_back(event);
  }
  std::set<std::string> names;
  for (const auto& [number, lane] : lanes) names.insert(lane);
  EXPECT_TRUE(names.count("model bucket 0: second")) << trace.dump(1);
  EXPECT_TRUE(names.count("model bucket 1: first"));
  ASSERT_EQ(events["backward"].size(), 2u);
  EXPECT_EQ(lanes[events["backward"][0]["tid"]], "application");
  ASSERT_EQ(events["exchange"].size(), 4u);
  EXPECT_EQ(events["exchange"][0]["args"]["scheme"], "topk + residual");
  EXPECT_GT(events["exchange"][0]["args"]["bytes"], 0);
  EXPECT_EQ(events["all_reduce loss"].size(), 2u);
}

}  // namespace
}  // namespace penstock::words_test
