// Values of chosen entries, in the type in which they travel: the counterpart of SparseValues
// (../../methods/sparse_values.hpp), with its bits. Contract: workspace.hpp.
#pragma once

#include <kernels/narrow_values.hpp>

#include <cstdint>

namespace penstock::kernels::cuda {

// Entries of work that a selection has chosen: `*count` ascending indices, at most `capacity`; if
// count is null, `capacity` indices.
struct ChosenEntries {
  float* work;
  const uint32_t* indices;
  const uint64_t* count;
  uint64_t capacity;
};

// values[j] = the j-th chosen entry in `type`, as narrow_values of narrow_values.hpp rounds it. If
// `taken`, work keeps the rounding errors. `scale` is device memory, read for types
// with a scale only.
[[nodiscard]] int32_t send_values(ValueType type, const ChosenEntries& chosen, void* values,
                                  const float* scale, bool taken, void* stream) noexcept;

// *largest = the largest magnitude of the chosen entries, for value_scale of values.hpp; 0 if
// there are no entries. A NaN counts as zero.
[[nodiscard]] int32_t largest_of(const ChosenEntries& chosen, float* largest,
                                 void* stream) noexcept;

}  // namespace penstock::kernels::cuda
