// Misuses that are reported, and calls that are counted.
#include <thread>

#include "fixture.hpp"

namespace penstock::simulated::misuse_test {

class SimulatedMisuse : public SimulatedDevice {};
class SimulatedMisuseDeathTest : public SimulatedDevice {};

TEST_F(SimulatedMisuse, AWaitForAnEventNeverRecordedIsReported) {
  const cudaStream_t stream = new_stream();
  SUCCEEDS(cudaStreamWaitEvent(stream, new_event()));
  EXPECT_EQ(only_report().misuse, Misuse::kWaitForNothing);
  EXPECT_TRUE(contains(only_report().sentence, "never recorded"));
}

TEST_F(SimulatedMisuseDeathTest, ATestMayHaveMisuseEndTheProgram) {
  Settings settings;
  settings.abort_on_misuse = true;
  begin(settings);
  const cudaStream_t stream = new_stream();
  const cudaEvent_t event = new_event();
  EXPECT_DEATH((void)cudaStreamWaitEvent(stream, event), "waits for event 0x.*never recorded");
}

TEST_F(SimulatedMisuse, AStreamDestroyedWithWorkIsReportedAndItsWorkRuns) {
  unsigned char* memory = device_bytes(1);
  const cudaStream_t stream = new_stream();
  SUCCEEDS(cudaMemsetAsync(memory, 3, 1, stream));
  SUCCEEDS(cudaStreamDestroy(stream));
  EXPECT_EQ(only_report().misuse, Misuse::kStreamDestroyedBusy);
  EXPECT_EQ(read(memory, 1)[0], 3);
}

TEST_F(SimulatedMisuse, AStreamDestroyedIdleIsNotReported) {
  unsigned char* memory = device_bytes(1);
  const cudaStream_t stream = new_stream();
  SUCCEEDS(cudaMemsetAsync(memory, 3, 1, stream));
  SUCCEEDS(cudaStreamSynchronize(stream));
  SUCCEEDS(cudaStreamDestroy(stream));
  EXPECT_TRUE(reports().empty());
}

TEST_F(SimulatedMisuse, AnEventDestroyedWhileWaitedForIsReportedAndStillHolds) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    begin_with_seed(seed);
    unsigned char* memory = device_bytes(1);
    const cudaStream_t first = new_stream(), second = new_stream();
    const cudaEvent_t event = new_event();
    SUCCEEDS(cudaMemsetAsync(memory, 1, 1, first));
    SUCCEEDS(cudaEventRecord(event, first));
    SUCCEEDS(cudaStreamWaitEvent(second, event));
    SUCCEEDS(cudaMemsetAsync(memory, 2, 1, second));
    SUCCEEDS(cudaEventDestroy(event));
    EXPECT_EQ(only_report().misuse, Misuse::kEventDestroyedBusy);
    EXPECT_EQ(read(memory, 1)[0], 2);
  }
}

TEST_F(SimulatedMisuse, PinnedMemoryFreedWhileACopyUsesItIsReported) {
  unsigned char* memory = device_bytes(4);
  unsigned char* pinned = pinned_bytes(8);
  SUCCEEDS(cudaMemcpyAsync(memory, pinned + 4, 4, cudaMemcpyHostToDevice, new_stream()));
  SUCCEEDS(cudaFreeHost(pinned));
  EXPECT_EQ(only_report().misuse, Misuse::kHostMemoryFreedBusy);
}

TEST_F(SimulatedMisuse, DeadHandlesAreRefusedAndReported) {
  const cudaStream_t stream = new_stream();
  const cudaEvent_t event = new_event();
  SUCCEEDS(cudaStreamDestroy(stream));
  SUCCEEDS(cudaEventDestroy(event));
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(event, nullptr), cudaErrorInvalidResourceHandle);
  ASSERT_EQ(reports().size(), 4u);
  for (const Report& report : reports()) EXPECT_EQ(report.misuse, Misuse::kDeadHandle);
}

TEST_F(SimulatedMisuse, MemoryFreedTwiceOrFromItsMiddleIsRefused) {
  unsigned char* memory = device_bytes(300);
  EXPECT_EQ(cudaFree(memory + 256), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(memory), cudaErrorInvalidValue);
  SUCCEEDS(cudaFree(memory));
  EXPECT_EQ(cudaFree(memory), cudaErrorInvalidValue);
  EXPECT_TRUE(contains(reports().back().sentence, "has been freed"));
}

TEST_F(SimulatedMisuse, LeaksAreNamed) {
  EXPECT_TRUE(leaks().empty());
  unsigned char* memory = device_bytes(77);
  unsigned char* pinned = pinned_bytes(78);
  const cudaStream_t stream = new_stream();
  const cudaEvent_t event = new_event();
  ASSERT_EQ(leaks().size(), 4u);
  EXPECT_TRUE(contains(leaks()[0], "77 bytes, memory of device 0"));
  EXPECT_TRUE(contains(leaks()[1], "78 bytes, pinned host memory"));
  EXPECT_TRUE(contains(leaks()[2], "stream"));
  EXPECT_TRUE(contains(leaks()[3], "event"));
  EXPECT_EQ(held_bytes(0), 77u);
  SUCCEEDS(cudaFree(memory));
  SUCCEEDS(cudaFreeHost(pinned));
  SUCCEEDS(cudaStreamDestroy(stream));
  SUCCEEDS(cudaEventDestroy(event));
  EXPECT_TRUE(leaks().empty());
  EXPECT_EQ(held_bytes(0), 0u);
}

TEST_F(SimulatedMisuse, WaitsOfTheHostAreCountedByKindAndThread) {
  unsigned char* memory = device_bytes(1);
  const cudaStream_t stream = new_stream();
  const cudaEvent_t event = new_event();
  unsigned char pageable = 0;
  SUCCEEDS(cudaMemsetAsync(memory, 1, 1, stream));
  SUCCEEDS(cudaEventRecord(event, stream));
  (void)cudaEventQuery(event);
  EXPECT_EQ(waits().total(), 0u);
  SUCCEEDS(cudaMemcpyAsync(&pageable, memory, 1, cudaMemcpyDeviceToHost, stream));
  SUCCEEDS(cudaStreamSynchronize(stream));
  SUCCEEDS(cudaEventSynchronize(event));
  SUCCEEDS(cudaDeviceSynchronize());
  SUCCEEDS(cudaMemcpy(&pageable, memory, 1, cudaMemcpyDeviceToHost));
  std::thread([memory] { EXPECT_EQ(cudaFree(memory), cudaSuccess); }).join();
  const Waits all = waits(), mine = waits_of_this_thread();
  EXPECT_EQ(mine.for_pageable_copy, 1u);
  EXPECT_EQ(mine.for_stream, 1u);
  EXPECT_EQ(mine.for_event, 1u);
  EXPECT_EQ(mine.for_device, 1u);
  EXPECT_EQ(mine.for_copy, 1u);
  EXPECT_EQ(mine.for_free, 0u);
  EXPECT_EQ(all.for_free, 1u);
  EXPECT_EQ(all.total(), 6u);
  EXPECT_EQ(waits_by_thread().size(), 2u);
}

TEST_F(SimulatedMisuse, CallsAreCounted) {
  (void)device_bytes(1);
  (void)device_bytes(1);
  std::thread([] { (void)device_bytes(1); }).join();
  EXPECT_EQ(calls(Call::kAllocate), 3u);
  EXPECT_EQ(calls_of_this_thread(Call::kAllocate), 2u);
  EXPECT_EQ(calls(Call::kLaunch), 0u);
}

}  // namespace penstock::simulated::misuse_test
