// Ranks are threads. Each has its own streams, and all use one machine.
#include <atomic>
#include <thread>

#include "fixture.hpp"

namespace penstock::simulated::threads_test {

class SimulatedThreads : public SimulatedDevice {};

constexpr int kRanks = 4, kSteps = 100;

// Fills, copies to the host through an event on a second stream, polls, compares.
void run_rank(int rank, std::atomic<int>& wrong) {
  EXPECT_EQ(cudaSetDevice(rank % 2), cudaSuccess);
  constexpr uint64_t kBytes = 5000;
  unsigned char* memory = device_bytes(kBytes);
  unsigned char* pinned = pinned_bytes(kBytes);
  const cudaStream_t work = new_stream(), copies = new_stream();
  const cudaEvent_t filled = new_event(), copied = new_event();
  for (int step = 0; step < kSteps; ++step) {
    const auto value = static_cast<unsigned char>(rank * kSteps + step);
    EXPECT_EQ(cudaMemsetAsync(memory, value, kBytes, work), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(filled, work), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(copies, filled), cudaSuccess);
    EXPECT_EQ(cudaMemcpyAsync(pinned, memory, kBytes, cudaMemcpyDeviceToHost, copies), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(copied, copies), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(work, copied), cudaSuccess);
    if (step % 10 == 9)
      EXPECT_EQ(cudaEventSynchronize(copied), cudaSuccess);
    else
      while (cudaEventQuery(copied) == cudaErrorNotReady) std::this_thread::yield();
    wrong += std::count(pinned, pinned + kBytes, value) == kBytes ? 0 : 1;
  }
  EXPECT_EQ(cudaStreamSynchronize(work), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  for (const cudaStream_t stream : {work, copies})
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  for (const cudaEvent_t event : {filled, copied}) EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(SimulatedThreads, FourRanksOnTwoDevicesDoNotDisturbEachOther) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank)
    ranks.emplace_back([rank, &wrong] { run_rank(rank, wrong); });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(reports().empty());
  EXPECT_TRUE(leaks().empty());
}

// A function of the host may wait for another thread, and this thread must be able to make calls.
TEST_F(SimulatedThreads, AHostFunctionThatWaitsHoldsNobodyUp) {
  const cudaStream_t stream = new_stream(), other = new_stream();
  std::atomic<bool> go{false};
  SUCCEEDS(cudaLaunchHostFunc(
      stream,
      [](void* data) {
        while (!static_cast<std::atomic<bool>*>(data)->load()) std::this_thread::yield();
      },
      &go));
  std::thread waiter([stream] { EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess); });
  unsigned char* memory = device_bytes(1);
  SUCCEEDS(cudaMemsetAsync(memory, 1, 1, other));
  SUCCEEDS(cudaStreamSynchronize(other));
  go = true;
  waiter.join();
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
}

}  // namespace penstock::simulated::threads_test
