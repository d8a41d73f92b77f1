// Helpers for calls that work on a device: whether kernels exist, and how a method queues them.
//
// If a plugin was linked with the device kernels (ON_DEVICES of penstock_add_plugin), it has a CUDA
// twin of each kernel that it calls on the CPU, and its traits name CUDA (device_types). A twin
// gives equal bits unless its header says otherwise. The functions are in the files of this folder,
// by family of methods. Each caller tests kHasKernels first, so that a plugin without the kernels
// does not link against them:
//
//   if constexpr (device::kHasKernels)
//     if (call.on_device()) return device::take_largest(...);
//
// All functions are [step]; they queue on the call's stream, use the call's scratch, and return
// without waiting. Errors of the device are thrown as DEVICE_ERROR.
#pragma once

#include <penstock/views.hpp>

#include <kernels/cuda/current_device.hpp>
#include <kernels/cuda/workspace.hpp>

#include <string_view>

namespace penstock::sdk::device {

#if defined(PENSTOCK_DEVICE_KERNELS)
inline constexpr bool kHasKernels = true;
#else
inline constexpr bool kHasKernels = false;
#endif

// For traits.device_types.
inline constexpr uint64_t kCpuAlone = uint64_t{1} << PENSTOCK_DEVICE_CPU;
inline constexpr uint64_t kCpuAndCuda = kCpuAlone | uint64_t{1} << PENSTOCK_DEVICE_CUDA;
inline constexpr uint64_t kWhereKernelsAre = kHasKernels ? kCpuAndCuda : kCpuAlone;

// Makes the call's device current and calls queue(stream), which returns the first error of a
// kernel. Throws DEVICE_ERROR for it; the message names the action `what`.
template <typename Queue>
void queue_on_device(const Call& call, const Item& item, std::string_view what, Queue&& queue) {
  const kernels::cuda::CurrentDevice current(call.exec->device_id);
  const int32_t error = current.error() != 0 ? current.error() : queue(call.exec->stream);
  if (error != 0)
    throw device_error("cuda:", call.exec->device_id, " cannot ", what, " gradient '", item.name(),
                       "': ", kernels::cuda::error_text(error), " (error ", error, ")");
}

// The call's scratch from `offset_bytes` on, for a kernel. `offset_bytes` is a multiple of 64.
inline kernels::cuda::Workspace workspace_of(const Call& call, uint64_t offset_bytes = 0) {
  if (offset_bytes > call.exec->scratch_bytes)
    throw internal("scratch of ", offset_bytes, " bytes wanted, planned ",
                   call.exec->scratch_bytes);
  return {static_cast<char*>(call.exec->scratch) + offset_bytes,
          call.exec->scratch_bytes - offset_bytes};
}

}  // namespace penstock::sdk::device
