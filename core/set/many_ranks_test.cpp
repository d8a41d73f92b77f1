// With many ranks the traffic through rank 0 grows with their number, and not with its square. The
// test has 64 ranks that are threads of this process, and 256 in long runs.

#include "core/set/testing.hpp"
#include "tests/support/long.hpp"
#include "tests/support/sanitized.hpp"

#include <nlohmann/json.hpp>

#include <barrier>

namespace penstock::many_ranks_test {
namespace {

using testing::make_set;
using testing::with_ranks;

// Under a sanitizer, 256 ranks on a few cores receive no heartbeats for so long that each takes the
// other ranks for dead.
const uint32_t kRanks = test::kSanitized ? 32 : test::is_long() ? 256 : 64;
constexpr size_t kGradients = 161;  // as in ResNet-50

struct ThroughRank0 {
  double starting = 0;   // the run and a set, in bytes
  double observing = 0;  // one observation: control messages of rank 0, and its payloads
};

// One bucket for each gradient, which needs more text than the plan of any other scheduler.
ThroughRank0 count_through_rank_0() {
  std::vector<testing::GradientShape> shapes;
  for (size_t i = 0; i < kGradients; ++i)
    shapes.push_back({fmt::format("layer{}.conv.weight", i), {8}});
  const std::string scheme =
      testing::scheme_text("compressor = \"none\"\nmemory = \"none\"\nscheduler = \"witness\"",
                           testing::test_plugins({"patient_witness"}));
  ThroughRank0 bytes;
  std::barrier all(kRanks);
  with_ranks(kRanks, scheme, [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, shapes);
    EXPECT_TRUE(set.ok()) << set.status().message();
    all.arrive_and_wait();
    if (rank == 0) bytes.starting = double(runtime.control().served_bytes());
    all.arrive_and_wait();
    std::vector<std::vector<float>> gradients(kGradients, std::vector<float>(8, 1.0f));
    for (int step = 0; step < 2 && set.ok(); ++step) {
      for (size_t i = 0; i < kGradients; ++i)
        EXPECT_TRUE(set.value()->gradient_ready(i, testing::view_of(gradients[i])).ok());
      EXPECT_TRUE(set.value()->wait_all().ok());
      all.arrive_and_wait();
      const double before = double(runtime.control().served_bytes());
      EXPECT_TRUE(set.value()->step_end(true).ok());
      all.arrive_and_wait();
      if (rank != 0 || step == 0) continue;
      const auto report = nlohmann::json::parse(set.value()->report().value());
      bytes.observing = double(runtime.control().served_bytes()) - before +
                        report.at("counters").at("measuring_bytes").get<double>();
    }
  });
  return bytes;
}

TEST(ManyRanks, StartAndObserveWithLittleThroughRank0) {
  const ThroughRank0 bytes = count_through_rank_0();
  EXPECT_GT(bytes.starting, 0);
  EXPECT_LT(bytes.starting, kRanks * 80e3);
  EXPECT_GT(bytes.observing, 0);
  EXPECT_LT(bytes.observing, kRanks * 4e3);
  RecordProperty("starting", fmt::format("{}", bytes.starting));
  RecordProperty("observing", fmt::format("{}", bytes.observing));
}

}  // namespace
}  // namespace penstock::many_ranks_test
