// Clipping of a gradient before it is accumulated (Deep Gradient Compression, section 3.2), on a
// device: its norm, and compensate with the clipped gradient. Contract: workspace.hpp.
//
// A norm is a sum in double, in a device's own order (reduce.hpp).
#pragma once

#include <kernels/cuda/tuning.hpp>
#include <kernels/cuda/workspace.hpp>
#include <kernels/fold.hpp>

namespace penstock::kernels::cuda {

// Workspace for n elements: the sum first, then one sum for each tile.
constexpr uint64_t square_norm_workspace_bytes(uint64_t n) {
  return 64 + (n / kSumTile + 1) * sizeof(double);
}

// *result = the sum of (x[i] / scale)^2.
[[nodiscard]] int32_t square_norm(const float* x, uint64_t n, double scale, float* result,
                                  Workspace workspace, void* stream) noexcept;

// Does the work of compensate_clipped of ../fold.hpp.
[[nodiscard]] int32_t compensate_clipped(const Fold& fold, const Clip& clip, uint64_t n,
                                         void* stream) noexcept;

// compensate_clipped with Clip::to_norm(norm of grad / scale, most), where the device computes the
// norm.
[[nodiscard]] int32_t compensate_clipped_to_norm(const Fold& fold, double scale, double most,
                                                 uint64_t n, Workspace workspace,
                                                 void* stream) noexcept;

}  // namespace penstock::kernels::cuda
