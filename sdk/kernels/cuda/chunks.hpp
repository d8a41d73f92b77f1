// Chunks of an array on a device: their norms, and the values of those that were chosen, moved
// together and apart. Contract: workspace.hpp.
#pragma once

#include <kernels/cuda/workspace.hpp>
#include <kernels/narrow_values.hpp>

#include <cstdint>

namespace penstock::kernels::cuda {

// `kept` chunks of n entries that are cut into chunks of `chunk`, the last of which may be shorter:
// those of `indices`, ascending; or with null all n entries, as they are.
struct ChosenChunks {
  uint64_t n;
  uint64_t chunk;
  uint64_t kept;
  const uint32_t* indices;

  // Values that travel: a short chunk is filled up with zeros.
  constexpr uint64_t capacity() const { return indices == nullptr ? n : kept * chunk; }
};

// norms[c] = the sum of |x| over chunk c, in double (reduce.hpp tells the order), as a float.
[[nodiscard]] int32_t chunk_norms(const float* x, uint64_t n, uint64_t chunk, float* norms,
                                  Workspace workspace, void* stream) noexcept;
uint64_t chunk_norms_workspace_bytes(uint64_t n, uint64_t chunk) noexcept;

// values[capacity] = the chosen entries of work in `type`, which is not int8, and within `limit`
// unless it is float32. Where `taken`, work keeps what was not sent of them: nothing where all was,
// infinity included.
[[nodiscard]] int32_t take_chunks(ValueType type, float* work, const ChosenChunks& chosen,
                                  float limit, bool taken, void* values, void* stream) noexcept;

// out[n] = values[capacity] * mean where they belong, and zero everywhere else.
[[nodiscard]] int32_t spread_chunks(ValueType type, const void* values, const ChosenChunks& chosen,
                                    float mean, float* out, void* stream) noexcept;

}  // namespace penstock::kernels::cuda
