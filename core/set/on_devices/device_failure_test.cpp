// Devices that do not exist, give no memory, or fail in the middle of a step: the error of each
// rank, and no memory that is freed while a copy uses it.

#include "core/set/on_devices/device_testing.hpp"

namespace penstock::device_failure_test {
namespace {

using namespace testing;  // every name in device_testing.hpp

const std::string kDense = scheme_text("scheduler = \"wfbp\"");
const std::vector<GradientShape> kShapes{{"weight", {400, 30}}, {"bias", {7}}};

// The last of two ranks declares its gradients on a device that it cannot have. This rank learns
// the reason, and the other rank learns that the last rank cannot take part. Both can then make
// another set.
void expect_refused(const std::vector<std::string>& parts, int32_t device = 0,
                    Result<RuntimeHandle> (*open)(const std::string&) = open_rank_over_devices) {
  with_ranks(
      2, kDense,
      [&](Runtime& runtime, uint32_t rank) {
        const auto set =
            make_set(runtime, rank == 1 ? lying_on(kShapes, on_cuda(device)) : kShapes);
        ASSERT_FALSE(set.ok());
        for (const std::string& part : parts)
          EXPECT_TRUE(contains(set.status().message(), part)) << set.status().message();
        EXPECT_EQ(contains(set.status().message(), "rank 1 cannot take part"), rank == 0)
            << set.status().message();
        auto another = make_set(runtime, kShapes, 0, "another");
        ASSERT_OK(another.status());
        std::vector<std::vector<float>> gradients{std::vector<float>(12000, float(rank)),
                                                  std::vector<float>(7, float(rank))};
        ASSERT_OK(run_step(**another, gradients));
        EXPECT_EQ(gradients[0][0], 0.5f);
      },
      open);
}

TEST(DeviceFailure, WithoutATheFileOfTheTableItIsNamed) {
  expect_refused({"gradient 'weight' of set 'model' lies on cuda:0",
                  "libpenstock_device_cuda.so: this build knows the CPU only"},
                 0, open_rank);
}

TEST(DeviceFailure, WithoutADriverADeviceOrOneOfThatNumberItSaysWhatToDo) {
  simulated::Settings settings;
  settings.driver = simulated::Driver::kMissing;
  simulated::reset(settings);
  expect_refused({"gradient 'weight'", "no CUDA device can be used", "no NVIDIA driver; install"});
  settings.driver = simulated::Driver::kTooOld;
  simulated::reset(settings);
  expect_refused({"no CUDA device can be used", "older than this build's CUDA; update the driver"});
  settings.driver = simulated::Driver::kPresent;
  settings.devices = 0;
  simulated::reset(settings);
  expect_refused({"no CUDA device can be used", "CUDA_VISIBLE_DEVICES"});
  settings.devices = 2;
  simulated::reset(settings);
  expect_refused({"there is no cuda:2, this process sees 2 CUDA devices"}, 2);
}

TEST(DeviceFailure, MemoryStreamsOrEventsThatAreNotGivenLeaveNothingBehind) {
  using simulated::Call;
  for (const auto& [call, nth] : {std::pair(Call::kHostAllocate, 1),
                                  {Call::kStreamCreate, 1},
                                  {Call::kStreamCreate, 2},
                                  {Call::kEventCreate, 1},
                                  {Call::kEventCreate, 2},
                                  {Call::kEventCreate, 5}}) {
    const SimulatedDevices devices;
    simulated::fail_call(call, uint64_t(nth), 2);
    expect_refused(
        {"the staging buffers in host memory of 2 gradients of set 'model', the first is "
         "'weight': cuda:0",
         "(error 2)"});
  }
}

// Every rank learns of the failure, at the latest when it waits.
Status train_until_it_fails(Set& set, std::vector<Storage>& storage) {
  for (uint64_t step = 0; step < 50; ++step) {
    for (size_t i = storage.size(); i-- > 0;)
      PENSTOCK_TRY(set.gradient_ready(i, storage[i].tensor(), storage[i].stream()));
    PENSTOCK_TRY(end_step(set, storage, testing::Waits(step % 4), true));
  }
  return {};
}

void expect_run_to_end() {
  std::atomic<int> n_with_words = 0;
  with_device_ranks(3, kDense, [&](Runtime& runtime, uint32_t rank) {
    const auto shapes = lying_on(kShapes, on_cuda(int32_t(rank % 2)));
    std::vector<Storage> storage;
    for (const GradientShape& shape : shapes) storage.emplace_back(shape);
    auto set = make_set(runtime, shapes);
    ASSERT_OK(set.status());
    const Status status = train_until_it_fails(**set, storage);
    // The transport or the store may be the first to tell the other rank.
    const bool has_words = contains(status.message(), "cuda:") &&
                           contains(status.message(), "cannot") &&
                           contains(status.message(), "(error 719)");
    EXPECT_TRUE(has_words || contains(status.message(), "aborted by rank")) << status.message();
    EXPECT_TRUE(contains(status.message(), "set 'model', step")) << status.message();
    if (has_words) ++n_with_words;
    for (const Storage& one : storage) one.settle();
    const Status again = set.value()->wait_all();
    EXPECT_TRUE(contains(again.message(), "is torn")) << again.message();
  });
  EXPECT_GT(n_with_words, 0);
}

// The call does nothing and the device continues. All memory is freed after the queued work has
// run.
TEST(DeviceFailure, OfACallInTheMiddleOfAStepEndsTheRunOnEveryRank) {
  using simulated::Call;
  for (const Call call :
       {Call::kCopy, Call::kEventRecord, Call::kEventQuery, Call::kStreamWaitEvent})
    for (const uint64_t nth : {1, 7, 20, 41}) {
      const SimulatedDevices devices(nth);
      simulated::fail_call(call, nth, 719);
      ::testing::internal::CaptureStderr();
      expect_run_to_end();
      (void)::testing::internal::GetCapturedStderr();
    }
}

// The device is lost. Memory that it may still use is not freed.
TEST(DeviceFailure, OfACopyInTheMiddleOfAStepAbandonsTheStagingBuffers) {
  for (const uint64_t nth : {1, 6, 23}) {
    simulated::reset();
    simulated::fail_work(simulated::Call::kCopy, nth, 719);
    ::testing::internal::CaptureStderr();
    expect_run_to_end();
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_TRUE(contains(log, "the staging buffers of set 'model' are abandoned, not freed: cuda:"))
        << log;
    for (const auto& report : simulated::reports()) ADD_FAILURE() << report.sentence;
  }
  simulated::reset();
}

TEST(DeviceFailure, ASetThatEndsInTheMiddleOfAStepEndsItsCopiesFirst) {
  for (const bool aborts : {false, true}) {
    const SimulatedDevices devices(3);
    ::testing::internal::CaptureStderr();
    with_device_ranks(2, kDense, [&](Runtime& runtime, uint32_t rank) {
      const auto shapes = lying_on(kShapes, on_cuda(0));
      std::vector<Storage> storage;
      for (const GradientShape& shape : shapes) storage.emplace_back(shape);
      {
        auto set = make_set(runtime, shapes);
        ASSERT_OK(set.status());
        for (size_t i = 0; i < storage.size(); ++i) {
          storage[i].write(std::vector<float>(storage[i].bytes() / sizeof(float), float(rank)));
          const Status status =
              set.value()->gradient_ready(i, storage[i].tensor(), storage[i].stream());
          if (!aborts) ASSERT_OK(status);  // the other rank may have failed already
        }
        if (aborts && rank == 0) runtime.give_up(aborted("rank 0 has had enough"));
      }
      // No copy of the set uses the storage any more. Only the storage's own work is left.
      for (const Storage& one : storage) one.settle();
    });
    (void)::testing::internal::GetCapturedStderr();
  }
}

}  // namespace
}  // namespace penstock::device_failure_test
