// Devices and streams of torch, by those of its interfaces that know no CUDA.
#ifndef PENSTOCK_LIBTORCH_DEVICES_HPP
#define PENSTOCK_LIBTORCH_DEVICES_HPP

#include "door.hpp"

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <optional>

namespace penstock::torch {

// Where a device's memory lies in the words of the door; empty for a device that it does not know.
std::optional<Place> place_of(const at::Device& device);

// Orders the runtime's copies of one tensor with torch's current stream. torch tells the handles of
// its streams to none but CUDA's own headers, so the runtime is given the one that needs no
// telling, the device's default stream (null at the door), and that and the current one wait for
// each other. Where they are the same, as in most programs, nothing is queued.
class StreamRelay {
 public:
  // What is queued on the default stream from now on runs after what is queued on the current one.
  void default_after_current(const at::Device& device);
  // The other way round. The current stream has then to have come here before torch's allocator
  // gives the memory of `tensor` to anybody else.
  void current_after_default(const at::Tensor& tensor);

 private:
  std::optional<c10::Event> event_;  // made when it is first needed, kept from step to step
};

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_DEVICES_HPP
