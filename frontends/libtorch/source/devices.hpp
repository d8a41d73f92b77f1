// Devices and streams of torch. Uses only torch interfaces that do not depend on CUDA.
#ifndef PENSTOCK_LIBTORCH_DEVICES_HPP
#define PENSTOCK_LIBTORCH_DEVICES_HPP

#include "door.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <optional>

namespace penstock::torch {

// The place of a device's memory, as the C interface writes it; empty for a device type that the C
// interface does not have.
std::optional<Place> place_of(const at::Device& device);

// Orders the runtime's copies of one tensor with torch's current stream. Only torch's CUDA headers
// give the handle of a stream. The runtime therefore receives the device's default stream (null in
// the C interface), and the default stream and the current stream wait for each other. If the
// current stream is the default stream, as in most programs, no wait is queued.
class StreamRelay {
 public:
  // Work queued on the default stream from now on runs after the work that the current stream has
  // now.
  void default_after_current(const at::Device& device);
  // Work queued on the current stream from now on runs after the work that the default stream has
  // now. torch's allocator reuses the memory of `tensor` only after the current stream has reached
  // this point.
  void current_after_default(const at::Tensor& tensor);

 private:
  std::optional<c10::Event> event_;  // made at its first use, kept from step to step
};

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_DEVICES_HPP
