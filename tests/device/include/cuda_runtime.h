// Functions for kernels, and their launch, on a simulated device (tests/device/README.md). The
// host's compiler compiles unchanged kernels with this header.
//
// The threads of a block run in fibers. Each thread runs alone until it waits for others (a
// barrier, a shuffle). The order of threads and blocks changes from launch to launch. So a kernel
// that lacks a barrier, or that relies on an order of blocks, gives wrong results here. Threads
// that wait for each other forever, and lanes that meet in different operations, end the program
// with a message. The simulation cannot show errors of the memory model (missing fences), the
// speed, or the effects of the device's compiler.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>

#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local
#define __launch_bounds__(...)

struct float2 {
  float x, y;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

#pragma GCC visibility push(default)

// Variables of the thread that runs now.
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

// Increases by millions with each call, so that kernels that wait for it end soon.
long long clock64();

namespace penstock::simulated {

// Queues a kernel: `thread` runs for every thread of every block.
cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel,
                   std::function<void()> thread);

// Waits for all threads of the block.
void block_barrier();
// Waits for all lanes of the warp, which must come with an equal `operation`. Returns the values of
// the lanes, by lane.
const uint64_t* warp_exchange(const char* operation, unsigned mask, uint64_t value);

}  // namespace penstock::simulated

#pragma GCC visibility pop

namespace penstock::simulated {

template <typename T>
uint64_t bits_of(T value) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
template <typename T>
T value_of(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <typename T>
T old_value(T* at, T updated) {
  const T before = *at;
  *at = updated;
  return before;
}

}  // namespace penstock::simulated

// ---- Functions for kernels ----

inline void __syncthreads() {
  penstock::simulated::block_barrier();
}
inline void __threadfence() {}
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  (void)penstock::simulated::warp_exchange("syncwarp", mask, 0);
}
inline unsigned __ballot_sync(unsigned mask, bool predicate) {
  const uint64_t* all = penstock::simulated::warp_exchange("ballot", mask, predicate ? 1 : 0);
  unsigned bits = 0;
  for (unsigned l = 0; l < 32; ++l) bits |= static_cast<unsigned>(all[l]) << l;
  return bits;
}
template <typename T>
unsigned __match_any_sync(unsigned mask, T value) {
  const uint64_t* all =
      penstock::simulated::warp_exchange("match", mask, penstock::simulated::bits_of(value));
  unsigned bits = 0;
  for (unsigned l = 0; l < 32; ++l)
    bits |= (all[l] == penstock::simulated::bits_of(value) ? 1u : 0u) << l;
  return bits;
}
template <typename T>
T __shfl_sync(unsigned mask, T value, unsigned from) {
  return penstock::simulated::value_of<T>(penstock::simulated::warp_exchange(
      "shuffle", mask, penstock::simulated::bits_of(value))[from % 32]);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance) {
  const unsigned lane = threadIdx.x % 32;
  const uint64_t* all =
      penstock::simulated::warp_exchange("shuffle up", mask, penstock::simulated::bits_of(value));
  return penstock::simulated::value_of<T>(all[lane >= distance ? lane - distance : lane]);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, unsigned distance) {
  const unsigned lane = threadIdx.x % 32;
  return penstock::simulated::value_of<T>(penstock::simulated::warp_exchange(
      "shuffle xor", mask, penstock::simulated::bits_of(value))[(lane ^ distance) % 32]);
}
inline int __popc(unsigned bits) {
  return __builtin_popcount(bits);
}
inline int __ffs(int bits) {
  return __builtin_ffs(bits);
}
template <typename T>
T atomicAdd(T* at, T value) {
  return penstock::simulated::old_value(at, static_cast<T>(*at + value));
}
template <typename T>
T atomicMin(T* at, T value) {
  return penstock::simulated::old_value(at, value < *at ? value : *at);
}
template <typename T>
T atomicMax(T* at, T value) {
  return penstock::simulated::old_value(at, *at < value ? value : *at);
}
template <typename T>
T atomicAnd(T* at, T value) {
  return penstock::simulated::old_value(at, *at & value);
}
template <typename T>
T atomicOr(T* at, T value) {
  return penstock::simulated::old_value(at, *at | value);
}

// ---- Functions for hosts ----

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  return penstock::simulated::launch(
      *config, reinterpret_cast<const void*>(kernel),
      [kernel, kept = std::tuple<Parameters...>(arguments...)] { std::apply(kernel, kept); });
}
