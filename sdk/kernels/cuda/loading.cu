// See loading.hpp.
#include <cuda_runtime.h>
#include <kernels/cuda/current_device.hpp>
#include <kernels/cuda/loading.hpp>

#include <array>
#include <atomic>
#include <utility>

namespace penstock::kernels::cuda {

namespace {

constexpr int32_t kMostDevices = 256;

constinit ListedKernel* newest = nullptr;  // null until a kernel is listed

cudaError_t load(const ListedKernel* kernel) {
  cudaFuncAttributes unused{};
  cudaError_t error = cudaSuccess;
  for (; kernel != nullptr && error == cudaSuccess; kernel = kernel->next)
    error = cudaFuncGetAttributes(&unused, kernel->kernel);
  return error;
}

}  // namespace

ListedKernel::ListedKernel(const void* of) noexcept
    : kernel(of), next(std::exchange(newest, this)) {}

int32_t load_kernels(int32_t device, const char** why) noexcept {
  static std::array<std::atomic<bool>, kMostDevices> done{};
  const bool is_known = device >= 0 && device < kMostDevices;
  if (is_known && done[static_cast<size_t>(device)].load()) return cudaSuccess;
  const CurrentDevice current(device);
  int32_t error = current.error();
  if (error == cudaSuccess) error = load(newest);
  *why = error_text(error);
  if (error != cudaSuccess)
    (void)cudaGetLastError();
  else
    done[static_cast<size_t>(device)].store(true);
  return error;
}

}  // namespace penstock::kernels::cuda
