// Moves single entries by index, as sparse payloads need it. All functions are [any].
//
// Indices from peers are not trusted. The functions check every index before they change anything,
// and return how many entries lie before the first index that is out of range. If all indices are
// good, the result is `count`; otherwise nothing was changed.
#pragma once

#include <cstdint>

namespace penstock::kernels {

// The number of indices before the first index that is not below n; `count` if there is none.
uint64_t indices_in_range(const uint32_t* indices, uint64_t count, uint64_t n) noexcept;

// out[indices[j]] += values[j]; an index that occurs twice adds twice.
[[nodiscard]] uint64_t scatter_add(const uint32_t* indices, const float* values, uint64_t count,
                                   float* out, uint64_t n) noexcept;

// work[indices[j]] = 0.
[[nodiscard]] uint64_t zero_at(const uint32_t* indices, uint64_t count, float* work,
                               uint64_t n) noexcept;

// values[j] = x[indices[j]].
[[nodiscard]] uint64_t gather(const float* x, uint64_t n, const uint32_t* indices, uint64_t count,
                              float* values) noexcept;

}  // namespace penstock::kernels
