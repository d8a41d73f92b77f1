// Steps allocate no memory: not in the engine, not in the thread that communicates, and not in the
// application's calls.

#include "core/set/training_testing.hpp"

#include <support/allocation_counts.hpp>
#include <support/sanitized.hpp>

#include <barrier>

namespace penstock::allocations_test {
namespace {

using testing::run_step;
using testing::Values;

constexpr uint32_t kRanks = 2;
constexpr uint64_t kWarmUp = 30, kCounted = 20, kWindows = 8;
const std::vector<testing::GradientShape> kShapes{
    {"a.weight", {64, 48}}, {"a.bias", {64}}, {"b.weight", {32, 40}}, {"scalar", {}}};

// The fewest allocations of the process in any window of kCounted steps, after kWarmUp steps. Pools
// of the transport may still grow in one window, if more messages are under way than before. An
// allocation of every step is in every window.
uint64_t allocations_of(const std::string& scheme) {
  std::barrier together(kRanks);
  uint64_t before = 0, fewest = UINT64_MAX;
  testing::with_ranks(kRanks, scheme, [&](Runtime& runtime, uint32_t rank) {
    auto set = testing::make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    Values gradients;
    for (const auto& shape : kShapes) {
      uint64_t numel = 1;
      for (const int64_t extent : shape.shape) numel *= uint64_t(extent);
      gradients.emplace_back(numel);
    }
    const auto steps = [&](uint64_t count) {
      for (uint64_t step = 0; step < count; ++step) {
        for (auto& values : gradients)
          for (size_t i = 0; i < values.size(); ++i)
            values[i] = float((i * 37 + step * 11 + rank) % 101) - 50;
        ASSERT_OK(run_step(*set.value(), gradients));
      }
    };
    steps(kWarmUp);
    for (uint64_t window = 0; window < kWindows; ++window) {
      together.arrive_and_wait();
      if (rank == 0) before = test::process_allocations;
      together.arrive_and_wait();
      steps(kCounted);
      together.arrive_and_wait();
      if (rank == 0) fewest = std::min(fewest, test::process_allocations - before);
    }
  });
  return fewest;
}

struct Method {
  const char* name;
  const char* keys;
  const char* tables = "";
};

class StepsOf : public ::testing::TestWithParam<Method> {};
INSTANTIATE_TEST_SUITE_P(
    Methods, StepsOf,
    ::testing::Values(Method{"dense", "compressor = \"none\""},
                      Method{"fp16", "compressor = \"fp16\"\nmemory = \"residual\""},
                      Method{"topk", "compressor = \"topk\"\nmemory = \"residual\"",
                             "[compressor.topk]\ndensity = 0.05\n"},
                      Method{"dgc", "compressor = \"dgc\"\nmemory = \"dgc\""},
                      Method{"signs", "compressor = \"efsign\"\nmemory = \"residual\""},
                      Method{"low_rank", "compressor = \"powersgd\"\nmemory = \"residual\""},
                      Method{"owners",
                             "compressor = \"qsgd\"\nmemory = \"residual\"\nroute = \"shard\""}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(StepsOf, AllocateNoMemory) {
  if (test::kSanitized) GTEST_SKIP() << "a sanitizer's allocator is its own";
  const Method& method = GetParam();
  // Heartbeats allocate, so none is due while the test counts.
  const std::string scheme =
      testing::scheme_text(fmt::format("scheduler = \"fusion\"\n{}", method.keys),
                           fmt::format("heartbeat_s = 6\n{}", method.tables));
  EXPECT_EQ(allocations_of(scheme), 0u);
}

}  // namespace
}  // namespace penstock::allocations_test
