// Values of chosen entries, in the type in which they travel: the counterpart of SparseValues
// (../../methods/sparse_values.hpp), with its bits. Contract: workspace.hpp.
#pragma once

#include <kernels/narrow_values.hpp>

#include <cstdint>
#include <span>

namespace penstock::kernels::cuda {

// Entries of work that a selection has chosen: `*count` ascending indices, at most `capacity`; if
// count is null, `capacity` indices.
struct ChosenEntries {
  float* work;
  const uint32_t* indices;
  const uint64_t* count;
  uint64_t capacity;
};

// The chosen entries of a gradient, and the room of the payload that sends them.
struct SentEntries {
  ChosenEntries chosen;
  void* values;   // `capacity` values
  float* scale;   // one number; written for types with a scale only
  bool is_taken;  // work keeps the rounding errors
};

// For each of `all`: *scale = value_scale(type, the largest magnitude of the chosen entries) of
// narrow_values.hpp, where a NaN counts as zero and no entries have the magnitude 0; values[j] =
// the j-th chosen entry in `type`, as narrow_values rounds it. The arrays must not overlap. A
// launch handles as many payloads as most buckets have; a call takes any number.
[[nodiscard]] int32_t send_values(ValueType type, std::span<const SentEntries> all,
                                  void* stream) noexcept;

}  // namespace penstock::kernels::cuda
