// Queues kernels, fills and copies on a stream and keeps the first error. Internal to the CUDA
// kernels.
#pragma once

#include <cuda_runtime.h>
#include <kernels/cuda/loading.hpp>

#include <cstdint>
#include <type_traits>

namespace penstock::kernels::cuda {

// The number of pieces of `size` that cover n.
constexpr uint64_t pieces(uint64_t n, uint64_t size) {
  return n / size + (n % size != 0 ? 1 : 0);
}

constexpr bool aligned(const void* pointer, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

inline constexpr uint64_t kMostBlocks = 0x7fffffff;  // in a grid's first dimension

class Queue {
 public:
  explicit Queue(void* stream) : stream_(static_cast<cudaStream_t>(stream)) {}

  // Queues a kernel; does nothing for 0 blocks or after an error.
  template <auto kKernel, typename... Arguments>
  void run(uint64_t blocks, uint32_t threads, const Arguments&... arguments) {
    launch(listed<kKernel>(), blocks, threads, arguments...);
  }
  void zero(void* target, uint64_t bytes) {
    if (error_ == cudaSuccess && bytes > 0) keep(cudaMemsetAsync(target, 0, bytes, stream_));
  }

  // Copies within the device's memory.
  void copy(const void* source, void* target, uint64_t bytes) {
    if (error_ == cudaSuccess && bytes > 0)
      keep(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToDevice, stream_));
  }

  [[nodiscard]] int32_t error() const { return error_; }

 private:
  template <typename... Parameters>
  void launch(void (*kernel)(Parameters...), uint64_t blocks, uint32_t threads,
              const std::type_identity_t<Parameters>&... arguments) {
    if (error_ != cudaSuccess || blocks == 0) return;
    if (blocks > kMostBlocks) {
      error_ = cudaErrorInvalidValue;
      return;
    }
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(threads);
    config.stream = stream_;
    keep(cudaLaunchKernelEx(&config, kernel, arguments...));
  }

  // The CUDA runtime's last error is cleared, because other code that asks for it later must not
  // receive this error.
  void keep(cudaError_t error) {
    error_ = error;
    if (error != cudaSuccess) (void)cudaGetLastError();
  }

  cudaStream_t stream_;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace penstock::kernels::cuda
