// The current device of a thread. A kernel can be launched only while the device of its stream is
// the thread's current device.
#pragma once

#include <cstdint>

namespace penstock::kernels::cuda {

// Makes `device` the current device of the calling thread for a scope, and restores the earlier
// context: a context of another device, or none. cudaSetDevice of the runtime cannot do this: it
// has no "none". For a thread without a context it reports device 0, and restoring device 0 would
// create a context there. [any]
class CurrentDevice {
 public:
  explicit CurrentDevice(int32_t device) noexcept;
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice();
  // 0, or the number of the CUDA error that prevented the change.
  int32_t error() const noexcept { return error_; }

 private:
  void* before_ = nullptr;  // the context that was current
  bool changed_ = false;
  int32_t error_ = 0;
};

// The text for the number of a CUDA error; the text stays valid for ever. [any]
const char* error_text(int32_t error) noexcept;

}  // namespace penstock::kernels::cuda
