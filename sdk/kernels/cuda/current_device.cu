// See current_device.hpp. Contexts belong to the CUDA driver. Its functions are found through the
// CUDA runtime, so no program is linked with the driver.
#include <cuda_runtime.h>
#include <kernels/cuda/current_device.hpp>

#include <array>
#include <atomic>

namespace penstock::kernels::cuda {

namespace {

// The driver's error numbers are equal to the runtime's.
struct Driver {
  int32_t (*get_current)(void** context) = nullptr;
  int32_t (*set_current)(void* context) = nullptr;
  int32_t (*retain_primary)(void** context, int device) = nullptr;
  cudaError_t error = cudaSuccess;

  Driver() {
    find("cuCtxGetCurrent", get_current);
    find("cuCtxSetCurrent", set_current);
    find("cuDevicePrimaryCtxRetain", retain_primary);
  }

 private:
  template <typename Function>
  void find(const char* name, Function& function) {
    void* found = nullptr;
#if CUDART_VERSION >= 12050
    const cudaError_t failed =
        cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault);
#else
    const cudaError_t failed = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault);
#endif
    function = reinterpret_cast<Function>(found);
    if (error == cudaSuccess) error = failed;
    if (error == cudaSuccess && found == nullptr) error = cudaErrorInsufficientDriver;
  }
};

constexpr int32_t kMostDevices = 256;

// The primary context of a device, which the runtime uses too. It is kept for the life of the
// process, because the runtime keeps it too.
int32_t primary_context(const Driver& driver, int32_t device, void*& context) {
  static std::array<std::atomic<void*>, kMostDevices> known{};
  if (device < 0 || device >= kMostDevices) return cudaErrorInvalidDevice;
  context = known[static_cast<size_t>(device)].load();
  if (context != nullptr) return cudaSuccess;
  const int32_t error = driver.retain_primary(&context, device);
  if (error == cudaSuccess) known[static_cast<size_t>(device)].store(context);
  return error;
}

const Driver& driver() {
  static const Driver found;
  return found;
}

}  // namespace

// The runtime's last error is cleared, because other code that asks for it later must not receive
// this error.
CurrentDevice::CurrentDevice(int32_t device) noexcept {
  error_ = driver().error;
  void* wanted = nullptr;
  if (error_ == cudaSuccess) error_ = primary_context(driver(), device, wanted);
  if (error_ == cudaSuccess) error_ = driver().get_current(&before_);
  if (error_ == cudaSuccess && before_ != wanted) {
    error_ = driver().set_current(wanted);
    changed_ = error_ == cudaSuccess;
  }
  if (error_ != cudaSuccess) (void)cudaGetLastError();
}

CurrentDevice::~CurrentDevice() {
  if (changed_) (void)driver().set_current(before_);
}

const char* error_text(int32_t error) noexcept {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

}  // namespace penstock::kernels::cuda
