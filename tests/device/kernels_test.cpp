// Kernels on streams, and the memory that they may touch.
#include <cuda_runtime.h>

#include <csignal>
#include <thread>

#include "fixture.hpp"

namespace penstock::simulated::kernels_test {

class SimulatedKernels : public SimulatedDevice {};
class SimulatedKernelsDeathTest : public SimulatedDevice {};

// Sums a block through shared memory. The sum is wrong if two kernels run at once.
__global__ void add_sum_of_block(unsigned* values, unsigned* sum) {
  __shared__ unsigned staged[64];
  staged[threadIdx.x] = values[threadIdx.x];
  __syncthreads();
  for (unsigned half = 32; half > 0; half /= 2) {
    if (threadIdx.x < half) staged[threadIdx.x] += staged[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(sum, staged[0]);
}

// Relies on shared memory that it does not clear.
__global__ void count_threads(unsigned* counted) {
  __shared__ unsigned count;
  atomicAdd(&count, 1u);
  __syncthreads();
  if (threadIdx.x == 0) counted[blockIdx.x] = count;
}

__global__ void increment(unsigned* values) {
  ++values[threadIdx.x];
}
__global__ void set(unsigned char* byte) {
  if (threadIdx.x == 0) *byte = 1;
}

// Adds under the assumption that no other block runs at this time.
__global__ void add_alone(unsigned* sum) {
  const unsigned before = *sum;
  __syncthreads();
  if (threadIdx.x == 0) *sum = before + 1;
}

template <typename... Parameters, typename... Arguments>
cudaError_t run(void (*kernel)(Parameters...), unsigned threads, cudaStream_t stream,
                Arguments... arguments) {
  cudaFuncAttributes attributes;
  EXPECT_EQ(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)), cudaSuccess);
  cudaLaunchConfig_t config{};
  config.blockDim = dim3(threads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

unsigned sum_on_device(unsigned first, int times) {
  auto* values = reinterpret_cast<unsigned*>(device_bytes(64 * sizeof(unsigned)));
  auto* sum = reinterpret_cast<unsigned*>(device_bytes(sizeof(unsigned)));
  std::vector<unsigned> host(64);
  for (unsigned i = 0; i < 64; ++i) host[i] = first + i;
  const cudaStream_t stream = new_stream();
  EXPECT_EQ(cudaMemcpyAsync(values, host.data(), 256, cudaMemcpyHostToDevice, stream), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(sum, 0, sizeof(unsigned), stream), cudaSuccess);
  for (int time = 0; time < times; ++time) {
    EXPECT_EQ(run(add_sum_of_block, 64, stream, values, sum), cudaSuccess);
    EXPECT_EQ(run(increment, 64, stream, values), cudaSuccess);
  }
  unsigned result = 0;
  EXPECT_EQ(cudaMemcpyAsync(&result, sum, sizeof result, cudaMemcpyDeviceToHost, stream),
            cudaSuccess);
  return result;
}

unsigned expected_sum(unsigned first, unsigned times) {
  return times * (64 * first + 63 * 32) + 64 * (times * (times - 1) / 2);
}

TEST_F(SimulatedKernels, KernelsRunInTheOrderOfTheirStream) {
  EXPECT_EQ(sum_on_device(5, 10), expected_sum(5, 10));
}

TEST_F(SimulatedKernels, KernelsOfSeveralThreadsDoNotMeet) {
  std::vector<std::thread> ranks;
  for (unsigned rank = 0; rank < 4; ++rank)
    ranks.emplace_back([rank] {
      EXPECT_EQ(cudaSetDevice(static_cast<int>(rank % 2)), cudaSuccess);
      EXPECT_EQ(sum_on_device(rank * 1000, 50), expected_sum(rank * 1000, 50));
    });
  for (std::thread& rank : ranks) rank.join();
}

TEST_F(SimulatedKernels, SharedMemoryHoldsNothingThatABlockCanRestOn) {
  auto* counted = reinterpret_cast<unsigned*>(device_bytes(sizeof(unsigned)));
  SUCCEEDS(run(count_threads, 64, nullptr, counted));
  SUCCEEDS(cudaDeviceSynchronize());
  unsigned found = 0;
  SUCCEEDS(cudaMemcpy(&found, counted, sizeof found, cudaMemcpyDeviceToHost));
  EXPECT_EQ(found, 0xa5a5a5a5u + 64);
}

// The count after `launches` launches.
template <typename... Parameters, typename... Arguments>
unsigned sum_of_blocks(unsigned blocks, int launches, void (*kernel)(Parameters...),
                       Arguments... arguments) {
  auto* sum = reinterpret_cast<unsigned*>(device_bytes(sizeof(unsigned)));
  EXPECT_EQ(cudaMemset(sum, 0, sizeof(unsigned)), cudaSuccess);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(64);
  for (int launch = 0; launch < launches; ++launch)
    EXPECT_EQ(cudaLaunchKernelEx(&config, kernel, arguments..., sum), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  unsigned found = 0;
  EXPECT_EQ(cudaMemcpy(&found, sum, sizeof found, cudaMemcpyDeviceToHost), cudaSuccess);
  return found;
}

TEST_F(SimulatedKernels, SomeBlocksRunAtTheSameTime) {
  EXPECT_LT(sum_of_blocks(64, 50, add_alone), 64u * 50);
}

TEST_F(SimulatedKernels, BlocksThatRunAtTheSameTimeHaveSharedMemoryOfTheirOwn) {
  auto* values = reinterpret_cast<unsigned*>(device_bytes(64 * sizeof(unsigned)));
  const std::vector<unsigned> ones(64, 1);
  SUCCEEDS(cudaMemcpy(values, ones.data(), 256, cudaMemcpyHostToDevice));
  EXPECT_EQ(sum_of_blocks(64, 50, add_sum_of_block, values), 64u * 50 * 64);
}

TEST_F(SimulatedKernels, ALaunchOnAStreamOfAnotherDeviceIsRefused) {
  const cudaStream_t stream = new_stream();
  unsigned char* memory = device_bytes(1);
  SUCCEEDS(cudaSetDevice(1));
  EXPECT_EQ(run(set, 32, stream, memory), cudaErrorInvalidResourceHandle);
}

TEST_F(SimulatedKernels, ALaunchThatNoDeviceCanRunIsRefused) {
  unsigned char* memory = device_bytes(1);
  for (const unsigned threads : {0u, 31u, 1056u})
    EXPECT_EQ(run(set, threads, nullptr, memory), cudaErrorInvalidConfiguration) << threads;
}

TEST_F(SimulatedKernels, AKernelMayTouchPinnedMemory) {
  unsigned char* pinned = pinned_bytes(1);
  SUCCEEDS(run(set, 32, nullptr, pinned));
  SUCCEEDS(cudaDeviceSynchronize());
  EXPECT_EQ(*pinned, 1);
}

TEST_F(SimulatedKernels, AKernelThatFailsLosesItsDevice) {
  unsigned char* memory = device_bytes(1);
  fail_work(Call::kLaunch, 2, cudaErrorIllegalAddress);
  SUCCEEDS(run(set, 32, nullptr, memory));
  SUCCEEDS(run(set, 32, nullptr, memory));
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
}

TEST_F(SimulatedKernels, AKernelThatWritesALittleTooFarIsReported) {
  unsigned char* memory = device_bytes(100);
  SUCCEEDS(run(set, 32, nullptr, memory + 100));
  SUCCEEDS(cudaFree(memory));
  EXPECT_EQ(only_report().misuse, Misuse::kMemoryWrittenAround);
}

void run_and_wait(unsigned char* memory) {
  (void)run(set, 32, nullptr, memory);
  (void)cudaDeviceSynchronize();
}

TEST_F(SimulatedKernelsDeathTest, AKernelThatLeavesItsMemoryDies) {
  unsigned char* memory = device_bytes(256);
  EXPECT_EXIT(run_and_wait(memory + 256), ::testing::KilledBySignal(SIGSEGV),
              "a kernel on device 0 touched 0 bytes behind the end of allocation");
}

TEST_F(SimulatedKernelsDeathTest, AKernelThatTouchesFreedMemoryDies) {
  unsigned char* memory = device_bytes(256);
  SUCCEEDS(cudaFree(memory));
  EXPECT_EXIT(run_and_wait(memory), ::testing::KilledBySignal(SIGSEGV), "which has been freed");
}

TEST_F(SimulatedKernelsDeathTest, AKernelThatTouchesAnotherDeviceDies) {
  unsigned char* memory = device_bytes(256);
  SUCCEEDS(cudaSetDevice(1));
  EXPECT_EXIT(run_and_wait(memory), ::testing::KilledBySignal(SIGSEGV),
              "a kernel on device 1 touched byte 0 of .*: memory of another device");
}

}  // namespace penstock::simulated::kernels_test
