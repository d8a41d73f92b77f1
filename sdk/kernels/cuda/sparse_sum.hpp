// Sums of sparse payloads on a device, with the bits of a plain loop over senders. Contract:
// workspace.hpp.
#pragma once

#include <kernels/cuda/senders.hpp>
#include <kernels/narrow_values.hpp>

#include <cstdint>
#include <span>

namespace penstock::kernels::cuda {

// What one rank sent: `count` indices, each above the one before it and below n, and their values,
// for int8 with a scale in device memory. The device does not look whether that is so: whoever took
// them from a peer has.
struct SparseSender {
  const uint32_t* indices;
  const void* values;
  uint64_t count;
  const float* scale = nullptr;
};

// Whether a sum begins with zeros, or with what lies there.
enum class SumOver { kZeros, kWhatIsThere };

// out[i] = (0 or out[i]) + the values for i of all senders, in their order, and that times `scale`
// as a rounding of its own; n at most 2^32. `type` is that of all values, widened as in
// narrow_values.hpp. One kernel, and one pass over out.
[[nodiscard]] int32_t sum_sparse(std::span<const SparseSender> senders, SumOver over, float scale,
                                 float* out, uint64_t n, void* stream,
                                 ValueType type = ValueType::kFloat32) noexcept;

}  // namespace penstock::kernels::cuda
