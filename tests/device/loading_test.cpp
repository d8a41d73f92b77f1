// Kernels that are not loaded yet, and the waits of their first launch.
#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <future>
#include <thread>

#include "fixture.hpp"

namespace penstock::simulated::loading_test {

class SimulatedLoading : public SimulatedDevice {};

// Each test has its own kernels, because kernels stay loaded.
template <int kNumber>
__global__ void add_one(float* value) {
  if (threadIdx.x == 0) *value += 1;
}
template <int kNumber>
cudaError_t launch(float* value, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.blockDim = dim3(32);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, add_one<kNumber>, value);
}
template <int kNumber>
cudaError_t load() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(add_one<kNumber>));
}
float* new_value() {
  return reinterpret_cast<float*>(device_bytes(sizeof(float)));
}

TEST_F(SimulatedLoading, TheFirstLaunchOfAKernelWaitsForAllWorkOfTheDevice) {
  float* const value = new_value();
  const cudaStream_t busy = new_stream(), stream = new_stream();
  SUCCEEDS(cudaMemsetAsync(value, 0, sizeof *value, busy));
  SUCCEEDS(launch<0>(value, stream));
  EXPECT_EQ(queued(), 1u);
  EXPECT_EQ(waits().for_load, 1u);
  SUCCEEDS(cudaMemsetAsync(value, 0, sizeof *value, busy));
  SUCCEEDS(launch<0>(value, stream));
  EXPECT_EQ(queued(), 3u);
  EXPECT_EQ(waits().for_load, 1u);
}

TEST_F(SimulatedLoading, AKernelThatWasLoadedWaitsForNothing) {
  SUCCEEDS(load<1>());
  float* const value = new_value();
  SUCCEEDS(cudaMemsetAsync(value, 0, sizeof *value, new_stream()));
  SUCCEEDS(launch<1>(value, new_stream()));
  EXPECT_EQ(queued(), 2u);
  EXPECT_EQ(waits().total(), 0u);
}

TEST_F(SimulatedLoading, EachDeviceLoadsForItself) {
  SUCCEEDS(load<2>());
  SUCCEEDS(cudaSetDevice(1));
  SUCCEEDS(launch<2>(new_value(), new_stream()));
  EXPECT_EQ(waits().for_load, 1u);
}

// Rank 0 queues its part of a sum and then launches a kernel. Rank 1 waits for the end of this
// launch before it queues its own part. Returns whether rank 1 could continue within `patience`.
template <int kNumber>
bool the_other_rank_goes_on(std::chrono::milliseconds patience) {
  ncclUniqueId id{};
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::promise<void> launched;
  std::future<void> heard_of = launched.get_future();
  bool heard = false;
  const auto sum = [id](int rank, const auto& before, const auto& behind) {
    EXPECT_EQ(cudaSetDevice(rank), cudaSuccess);
    const cudaStream_t stream = new_stream();
    ncclComm_t communicator = nullptr;
    EXPECT_EQ(ncclCommInitRank(&communicator, 2, id, rank), ncclSuccess);
    float* const value = new_value();
    before();
    EXPECT_EQ(ncclAllReduce(value, value, 1, ncclFloat32, ncclSum, communicator, stream),
              ncclSuccess);
    behind(value);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(ncclCommDestroy(communicator), ncclSuccess);
  };
  std::thread first([&] {
    sum(
        0, [] {},
        [&](float*) {
          EXPECT_EQ(launch<kNumber>(new_value(), new_stream()), cudaSuccess);
          launched.set_value();
        });
  });
  std::thread second([&] {
    sum(
        1, [&] { heard = heard_of.wait_for(patience) == std::future_status::ready; },
        [](float*) {});
  });
  first.join();
  second.join();
  return heard;
}

TEST_F(SimulatedLoading, AFirstLaunchBehindASumOfRanksCanWaitForARankThatWaitsForItsHost) {
  EXPECT_FALSE(the_other_rank_goes_on<3>(std::chrono::milliseconds(500)));
  EXPECT_EQ(waits().for_load, 1u);
}

TEST_F(SimulatedLoading, RanksThatHaveLoadedTheirKernelsGoOn) {
  SUCCEEDS(load<4>());
  EXPECT_TRUE(the_other_rank_goes_on<4>(std::chrono::seconds(20)));
  EXPECT_EQ(waits().for_load, 0u);
}

}  // namespace penstock::simulated::loading_test
