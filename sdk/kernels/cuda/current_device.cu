// See current_device.hpp.
#include <cuda_runtime.h>
#include <kernels/cuda/current_device.hpp>

namespace penstock::kernels::cuda {

// The runtime's last error is cleared: who asks for it later must not find ours.
CurrentDevice::CurrentDevice(int32_t device) noexcept {
  cudaError_t error = cudaGetDevice(&before_);
  if (error == cudaSuccess && before_ != device) {
    error = cudaSetDevice(device);
    changed_ = error == cudaSuccess;
  }
  if (error != cudaSuccess) (void)cudaGetLastError();
  error_ = error;
}

CurrentDevice::~CurrentDevice() {
  if (changed_) (void)cudaSetDevice(before_);
}

const char* error_text(int32_t error) noexcept {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

}  // namespace penstock::kernels::cuda
