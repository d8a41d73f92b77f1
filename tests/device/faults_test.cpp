// Faults come exactly when they were ordered.
#include "core/device/device_table.h"

#include <cstdlib>

#include "fixture.hpp"

namespace penstock::simulated::faults_test {

class SimulatedFaults : public SimulatedDevice {};

TEST_F(SimulatedFaults, TheNthCallFailsAndDoesNothing) {
  unsigned char* memory = device_bytes(1);
  const cudaStream_t stream = new_stream();
  fail_call(Call::kFill, 2, cudaErrorUnknown);
  EXPECT_EQ(cudaMemsetAsync(memory, 1, 1, stream), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(memory, 2, 1, stream), cudaErrorUnknown);
  EXPECT_EQ(cudaGetLastError(), cudaErrorUnknown);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(queued(), 1u);
  EXPECT_EQ(cudaMemsetAsync(memory, 3, 1, stream), cudaSuccess);
  EXPECT_EQ(read(memory, 1)[0], 3);
}

TEST_F(SimulatedFaults, MemoryEndsWhereATestSaysSo) {
  (void)device_bytes(100);
  leave_memory(0, 1000);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 1001), cudaErrorMemoryAllocation);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(cudaMalloc(&memory, 1000), cudaSuccess);
  void* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, 1), cudaErrorMemoryAllocation);
  SUCCEEDS(cudaFree(memory));
  EXPECT_EQ(cudaMalloc(&more, 1), cudaSuccess);
  SUCCEEDS(cudaSetDevice(1));
  EXPECT_EQ(cudaMalloc(&more, 2000), cudaSuccess);
}

TEST_F(SimulatedFaults, WorkThatFailsShowsAtTheNextWaitAndStays) {
  unsigned char* memory = device_bytes(1);
  unsigned char* pinned = pinned_bytes(1);
  const cudaStream_t stream = new_stream();
  const cudaEvent_t event = new_event();
  fail_work(Call::kCopy, 1, cudaErrorIllegalAddress);
  EXPECT_EQ(cudaMemcpyAsync(memory, pinned, 1, cudaMemcpyHostToDevice, stream), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaMemsetAsync(memory, 1, 1, stream), cudaErrorIllegalAddress);
  SUCCEEDS(cudaSetDevice(1));
  EXPECT_EQ(cudaMemset(device_bytes(1), 1, 1), cudaSuccess) << "the other device lives";
}

TEST_F(SimulatedFaults, ALostDeviceFailsAllLaterCalls) {
  unsigned char* memory = device_bytes(1);
  const cudaStream_t stream = new_stream();
  const cudaEvent_t event = new_event();
  SUCCEEDS(cudaMemsetAsync(memory, 1, 1, stream));
  SUCCEEDS(cudaEventRecord(event, stream));
  lose_device(0);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaFree(memory), cudaErrorLaunchFailure);
  EXPECT_EQ(queued(), 2u) << "its work never runs";
}

// A stream that waits for an event of a lost device must not wait forever.
TEST_F(SimulatedFaults, AWaitForALostDeviceEnds) {
  const cudaStream_t there = new_stream();
  const cudaEvent_t event = new_event();
  SUCCEEDS(cudaEventRecord(event, there));
  SUCCEEDS(cudaSetDevice(1));
  const cudaStream_t here = new_stream();
  SUCCEEDS(cudaStreamWaitEvent(here, event));
  lose_device(0, cudaErrorDevicesUnavailable);
  EXPECT_EQ(cudaStreamSynchronize(here), cudaErrorDevicesUnavailable);
}

TEST_F(SimulatedFaults, WithoutADriverThereIsNoDevice) {
  for (const Driver driver : {Driver::kMissing, Driver::kTooOld}) {
    Settings settings;
    settings.driver = driver;
    reset(settings);
    int count = 7, version = 7;
    EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    EXPECT_EQ(count, 0);
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, 1), cudaErrorInsufficientDriver);
    EXPECT_EQ(cudaSetDevice(0), cudaErrorInsufficientDriver);
    SUCCEEDS(cudaDriverGetVersion(&version));
    EXPECT_EQ(version == 0, driver == Driver::kMissing);
  }
}

TEST_F(SimulatedFaults, TheTableSaysWhyThereIsNoDevice) {
  int32_t count = -1;
  const char* why_none = nullptr;
  EXPECT_EQ(penstock_device.device_count(&count, &why_none), 0);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(why_none, nullptr);
  Settings settings;
  settings.devices = 0;
  reset(settings);
  EXPECT_EQ(penstock_device.device_count(&count, &why_none), 0);
  EXPECT_EQ(count, 0);
  EXPECT_STREQ(why_none,
               "the driver finds no device; nvidia-smi lists all devices, and CUDA_VISIBLE_DEVICES "
               "may hide them");
  settings.driver = Driver::kMissing;
  reset(settings);
  EXPECT_EQ(penstock_device.device_count(&count, &why_none), 0);
  EXPECT_STREQ(why_none, "this machine has no NVIDIA driver; install one");
  settings.driver = Driver::kTooOld;
  reset(settings);
  EXPECT_EQ(penstock_device.device_count(&count, &why_none), 0);
  EXPECT_STREQ(why_none, "the NVIDIA driver is older than this build's CUDA; update the driver");
}

// In a separate process, in which no code has called reset() before.
TEST(SimulatedFaultsDeathTest, TheEnvironmentSaysHowManyDevicesThereAre) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("PENSTOCK_SIMULATED_DEVICES", "5", 1);
        int count = 0;
        (void)cudaGetDeviceCount(&count);
        std::_Exit(40 + count);
      },
      ::testing::ExitedWithCode(45), "");
}

}  // namespace penstock::simulated::faults_test
