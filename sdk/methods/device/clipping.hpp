// Compensates with a clipped gradient, on a device.
#pragma once

#include <kernels/cuda/clipping.hpp>
#include <methods/device/call.hpp>

namespace penstock::sdk::device {

// Memory for sums of squares of n elements, as doubles of a state: memories have no scratch.
inline constexpr uint64_t square_norm_room(uint64_t n) {
  return kernels::cuda::square_norm_workspace_bytes(n) / sizeof(double);
}

inline kernels::cuda::Workspace workspace_in(std::span<double> room) {
  return {room.data(), room.size_bytes()};
}

// *result, on the device, = the square of the norm of the true gradient.
inline void measure_square_norm(const Call& call, const Item& item, std::span<double> room,
                                float* result) {
  queue_on_device(call, item, "measure the norm of", [&](void* stream) {
    return kernels::cuda::square_norm(item.grad().data(), item.numel(), call.step->grad_scale,
                                      result, workspace_in(room), stream);
  });
}

inline void compensate_clipped(const Call& call, const Item& item, const kernels::Fold& fold,
                               const kernels::Clip& clip) {
  if (item.numel() == 0) return;
  queue_on_device(call, item, "clip and compensate", [&](void* stream) {
    return kernels::cuda::compensate_clipped(fold, clip, item.numel(), stream);
  });
}

// Compensates with the gradient clipped so that the norm of the true gradient is at most `most`.
inline void compensate_clipped_to_norm(const Call& call, const Item& item,
                                       const kernels::Fold& fold, double most,
                                       std::span<double> room) {
  if (item.numel() == 0) return;
  queue_on_device(call, item, "clip and compensate", [&](void* stream) {
    return kernels::cuda::compensate_clipped_to_norm(fold, call.step->grad_scale, most,
                                                     item.numel(), workspace_in(room), stream);
  });
}

}  // namespace penstock::sdk::device
