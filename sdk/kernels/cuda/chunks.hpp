// Chunks of an array on a device: their norms, and the values of the chosen chunks, which are
// gathered to send and spread on receipt. Contract: workspace.hpp.
#pragma once

#include <kernels/cuda/workspace.hpp>
#include <kernels/narrow_values.hpp>

#include <cstdint>

namespace penstock::kernels::cuda {

// The choice of `kept` chunks from n entries. The entries are cut into chunks of `chunk`; the last
// chunk may be shorter. `indices` are the chosen chunks, ascending; if it is null, all n entries
// are chosen, without chunks.
struct ChosenChunks {
  uint64_t n;
  uint64_t chunk;
  uint64_t kept;
  const uint32_t* indices;

  // The number of values that travel: a short chunk is filled up with zeros.
  constexpr uint64_t capacity() const { return indices == nullptr ? n : kept * chunk; }
};

// norms[c] = the sum of |x| over chunk c, in double (reduce.hpp states the order), as a float.
[[nodiscard]] int32_t chunk_norms(const float* x, uint64_t n, uint64_t chunk, float* norms,
                                  Workspace workspace, void* stream) noexcept;
uint64_t chunk_norms_workspace_bytes(uint64_t n, uint64_t chunk) noexcept;

// values[capacity] = the chosen entries of work in `type`, which is not int8, and within `limit`
// unless it is float32. If `taken`, the unsent rest of each entry stays in work: 0 if the whole
// value was sent, also for infinity.
[[nodiscard]] int32_t take_chunks(ValueType type, float* work, const ChosenChunks& chosen,
                                  float limit, bool taken, void* values, void* stream) noexcept;

// out[n] = values[capacity] * mean at the entries of the chosen chunks, and zero everywhere else.
[[nodiscard]] int32_t spread_chunks(ValueType type, const void* values, const ChosenChunks& chosen,
                                    float mean, float* out, void* stream) noexcept;

}  // namespace penstock::kernels::cuda
