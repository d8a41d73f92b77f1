// The kernels of the core: its own work on device-resident gradients (core/tensor/elements.hpp does
// it on the CPU). Each is queued on `stream`, on the current device.
#pragma once

#include "core/device/device_table.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

namespace penstock::device_cuda {

// One launch for up to 90 arrays.
cudaError_t find_nonfinite(std::span<const penstock_device_values> arrays, cudaStream_t stream);
cudaError_t fill_nan(void* values, uint64_t count, uint32_t dtype, cudaStream_t stream);
cudaError_t scale(void* values, uint64_t count, uint32_t dtype, float factor, cudaStream_t stream);
cudaError_t narrow(const float* source, void* target, uint64_t count, uint32_t dtype,
                   cudaStream_t stream);
cudaError_t copy_many(std::span<const penstock_device_copy> copies, cudaStream_t stream);
cudaError_t check_indices(std::span<const penstock_index_list> lists, cudaStream_t stream);

}  // namespace penstock::device_cuda
