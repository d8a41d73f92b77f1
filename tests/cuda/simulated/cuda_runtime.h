// A device made of this processor, so that the CUDA kernels can be tested where there is none: this
// header stands in for the CUDA runtime's, and kernels are compiled by the host's compiler as they
// are.
//
// Each thread of a block is a fiber. It runs alone until it waits for others (a barrier, a
// shuffle), and the order in which threads and blocks run changes from launch to launch: what lacks
// a barrier, or rests on an order of blocks, gives wrong results here. Threads that wait for each
// other for ever, and lanes that meet in different operations, end the program with a sentence.
// What this cannot show: the memory model (missing fences), speed, and what the device's compiler
// makes of the code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(...)

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

struct float2 {
  float x, y;
};

// Of the thread that runs now.
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace simulated {

// Runs `thread` for every thread of every block, or keeps it for later while a stream is captured.
void launch(dim3 grid, dim3 block, std::function<void()> thread);
void queue(std::function<void()> work);

// Waits for all threads of the block.
void block_barrier();
// Waits for all lanes of the warp, which must come with the same `operation`; what each of them
// brought, by lane.
const uint64_t* warp_exchange(const char* operation, unsigned mask, uint64_t value);

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

}  // namespace simulated

// ---- What kernels call ----

inline void __syncthreads() {
  simulated::block_barrier();
}
inline void __threadfence() {}
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  (void)simulated::warp_exchange("syncwarp", mask, 0);
}
inline unsigned __ballot_sync(unsigned mask, bool predicate) {
  const uint64_t* all = simulated::warp_exchange("ballot", mask, predicate ? 1 : 0);
  unsigned bits = 0;
  for (unsigned l = 0; l < 32; ++l) bits |= static_cast<unsigned>(all[l]) << l;
  return bits;
}
template <typename T>
unsigned __match_any_sync(unsigned mask, T value) {
  const uint64_t* all = simulated::warp_exchange("match", mask, simulated::bits_of(value));
  unsigned bits = 0;
  for (unsigned l = 0; l < 32; ++l) bits |= (all[l] == simulated::bits_of(value) ? 1u : 0u) << l;
  return bits;
}
template <typename T>
T __shfl_sync(unsigned mask, T value, unsigned from) {
  return simulated::value_of<T>(
      simulated::warp_exchange("shuffle", mask, simulated::bits_of(value))[from % 32]);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance) {
  const unsigned lane = threadIdx.x % 32;
  const uint64_t* all = simulated::warp_exchange("shuffle up", mask, simulated::bits_of(value));
  return simulated::value_of<T>(all[lane >= distance ? lane - distance : lane]);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, unsigned distance) {
  const unsigned lane = threadIdx.x % 32;
  return simulated::value_of<T>(simulated::warp_exchange(
      "shuffle xor", mask, simulated::bits_of(value))[(lane ^ distance) % 32]);
}
inline int __popc(unsigned bits) {
  return __builtin_popcount(bits);
}
inline int __ffs(int bits) {
  return __builtin_ffs(bits);
}
template <typename T>
T atomicAdd(T* at, T value) {
  return simulated::old_value(at, static_cast<T>(*at + value));
}
template <typename T>
T atomicMin(T* at, T value) {
  return simulated::old_value(at, value < *at ? value : *at);
}
template <typename T>
T atomicAnd(T* at, T value) {
  return simulated::old_value(at, *at & value);
}
template <typename T>
T atomicOr(T* at, T value) {
  return simulated::old_value(at, *at | value);
}

// ---- What hosts call ----

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
constexpr unsigned cudaStreamNonBlocking = 1;

namespace simulated {
struct Stream {};
struct Graph;
}  // namespace simulated
using cudaStream_t = simulated::Stream*;
using cudaGraph_t = simulated::Graph*;
using cudaGraphExec_t = simulated::Graph*;

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
};

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  simulated::launch(
      config->gridDim, config->blockDim,
      [kernel, kept = std::tuple<Parameters...>(arguments...)] { std::apply(kernel, kept); });
  return cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t error);
inline cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
// Filled with a pattern, for memory of a device is not zero.
cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMemcpy(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemset(void* target, int value, std::size_t bytes);
cudaError_t cudaMemsetAsync(void* target, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready, cudaGraph_t graph,
                                 unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
