// Calls that work on a device: what a method asks, and how it queues.
//
// A plugin has the CUDA twins of the kernels that it calls on the CPU, with the same bits, if it
// was linked with them (ON_DEVICES of penstock_add_plugin); its traits name CUDA then
// (device_types). They stand in the files beside this one, by family of methods. Whoever calls asks
// before, so that without the kernels nothing of them is linked:
//
//   if constexpr (device::kHasKernels)
//     if (call.on_device()) return device::take_largest(...);
//
// All functions are [step], queue on the call's stream, in its scratch, and return. What the device
// refuses is thrown: DEVICE_ERROR.
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

// Calls queue(stream), which returns the first error of a kernel, with the call's device as the
// current one; `what` is told where it fails.
template <typename Queue>
void queue_on_device(const Call& call, const Item& item, std::string_view what, Queue&& queue) {
  const kernels::cuda::CurrentDevice current(call.exec->device_id);
  const int32_t error = current.error() != 0 ? current.error() : queue(call.exec->stream);
  if (error != 0)
    throw device_error("cuda:", call.exec->device_id, " cannot ", what, " gradient '", item.name(),
                       "': ", kernels::cuda::error_text(error), " (error ", error, ")");
}

// The call's scratch from `offset_bytes` on, for a kernel; a multiple of 64.
inline kernels::cuda::Workspace workspace_of(const Call& call, uint64_t offset_bytes = 0) {
  if (offset_bytes > call.exec->scratch_bytes)
    throw internal("scratch of ", offset_bytes, " bytes wanted, planned ",
                   call.exec->scratch_bytes);
  return {static_cast<char*>(call.exec->scratch) + offset_bytes,
          call.exec->scratch_bytes - offset_bytes};
}

}  // namespace penstock::sdk::device
