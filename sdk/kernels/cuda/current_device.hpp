// On which device a thread's kernels run. A kernel can only be launched while the device of its
// stream is the thread's current one.
#pragma once

#include <cstdint>

namespace penstock::kernels::cuda {

// Makes `device` the calling thread's current one for a scope, and puts back what was: a context of
// another device, or none. The runtime's cudaSetDevice would not do for that: it knows no "none",
// and to put back device 0, which it names for a thread that has none, would make a context there.
// [any]
class CurrentDevice {
 public:
  explicit CurrentDevice(int32_t device) noexcept;
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice();
  // 0, or the number of the CUDA error that kept it from being so.
  int32_t error() const noexcept { return error_; }

 private:
  void* before_ = nullptr;  // the context that was current
  bool changed_ = false;
  int32_t error_ = 0;
};

// What the number of a CUDA error means; the text lives for ever. [any]
const char* error_text(int32_t error) noexcept;

}  // namespace penstock::kernels::cuda
