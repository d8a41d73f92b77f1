// The number of driver calls that a set and its steps make. The budgets here may only be lowered.

#include "core/set/on_devices/resident_testing.hpp"

namespace penstock::resident_budget_test {
namespace {

using namespace testing;  // every name in resident_testing.hpp
using simulated::Call;

constexpr size_t kGradients = 12;  // one bucket each

// Calls of the process, by kind.
struct Calls {
  uint64_t records = simulated::calls(Call::kEventRecord);
  uint64_t waits = simulated::calls(Call::kStreamWaitEvent);
  uint64_t copies = simulated::calls(Call::kCopy);
  uint64_t fills = simulated::calls(Call::kFill);
  uint64_t pinned = simulated::calls(Call::kHostAllocate);
  uint64_t memory = simulated::calls(Call::kAllocate);

  Calls operator-(const Calls& before) const {
    Calls since = *this;
    for (uint64_t Calls::*kind : {&Calls::records, &Calls::waits, &Calls::copies, &Calls::fills,
                                  &Calls::pinned, &Calls::memory})
      since.*kind -= before.*kind;
    return since;
  }
};

// The calls of one rank: to make the set, and in a later step.
struct Spent {
  Calls set, step;
};

// `scheme` decides whether each gradient has its own bucket. One stream writes all gradients, or
// each gradient has its own stream.
Spent spent(const std::string& tables, const char* scheme = kOneByOne, bool one_stream = false) {
  const DevicesForAll devices;
  Spent spent;
  with_device_ranks(1, resident_scheme(std::string(scheme), tables),
                    [&](Runtime& runtime, uint32_t) {
                      std::vector<GradientShape> shapes;
                      for (size_t i = 0; i < kGradients; ++i)
                        shapes.push_back({fmt::format("x{}", i), {1000}});
                      shapes = lying_on(shapes, on_cuda(0));
                      std::vector<Storage> storage = storage_of(shapes);
                      const Calls before_set;
                      auto set = make_set(runtime, shapes);
                      ASSERT_OK(set.status());
                      spent.set = Calls() - before_set;
                      for (int step = 0; step < 3; ++step) {
                        for (Storage& one : storage) one.write(std::vector<float>(1000, 1));
                        for (Storage& one : storage) one.settle();
                        const Calls before_step;
                        for (size_t i = storage.size(); i-- > 0;)
                          ASSERT_OK(set.value()->gradient_ready(
                              i, storage[i].tensor(), storage[one_stream ? 0 : i].stream()));
                        for (size_t i = 0; i < storage.size(); ++i)
                          ASSERT_OK(set.value()->wait_stream(i, storage[i].stream()));
                        spent.step = Calls() - before_step;
                        ASSERT_OK(set.value()->step_end(true));
                      }
                    });
  return spent;
}

TEST(DeviceBudget, APayloadThroughHostMemory) {
  const Spent got = spent("");
  EXPECT_LE(got.step.records, 4 * kGradients);
  EXPECT_LE(got.step.waits, 2 * kGradients);
  EXPECT_LE(got.step.copies, 2 * kGradients);
  EXPECT_LE(got.step.fills, 1 * kGradients);
  EXPECT_EQ(got.step.pinned + got.step.memory, 0u);
  EXPECT_LE(got.set.pinned, 2 * kGradients + 1);
  EXPECT_LE(got.set.memory, 4 * kGradients + 2);
}

TEST(DeviceBudget, APayloadFromDeviceToDevice) {
  const Spent got = spent(kOverNccl);
  EXPECT_LE(got.step.records, 5 * kGradients);
  EXPECT_LE(got.step.waits, 3 * kGradients);
  EXPECT_LE(got.step.copies, 1 * kGradients);
  EXPECT_LE(got.step.fills, 1 * kGradients);
  EXPECT_EQ(got.step.pinned + got.step.memory, 0u);
  EXPECT_LE(got.set.pinned, 1u);
  EXPECT_LE(got.set.memory, 4 * kGradients + 2);
}

// When the last gradient of a stream is done, the earlier work of the stream is done too.
TEST(DeviceBudget, ABucketWaitsOnceForEachStreamThatWritesIt) {
  constexpr const char* kTogether = "memory = \"residual-simulated\"\nscheduler = \"fusion\"";
  EXPECT_LE(spent("", kTogether, true).step.waits, kGradients + 1);
  EXPECT_LE(spent("", kTogether, false).step.waits, 2 * kGradients);
}

}  // namespace
}  // namespace penstock::resident_budget_test
