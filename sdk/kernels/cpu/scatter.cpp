// See scatter.hpp.
#include <kernels/scatter.hpp>

#include <algorithm>

namespace penstock::kernels {

uint64_t indices_in_range(const uint32_t* indices, uint64_t count, uint64_t n) noexcept {
  uint32_t largest = 0;
  for (uint64_t j = 0; j < count; ++j) largest = std::max(largest, indices[j]);
  if (count == 0 || largest < n) return count;
  uint64_t first = 0;
  while (indices[first] < n) ++first;
  return first;
}

uint64_t scatter_add(const uint32_t* indices, const float* values, uint64_t count, float* out,
                     uint64_t n) noexcept {
  const uint64_t good = indices_in_range(indices, count, n);
  if (good == count)
    for (uint64_t j = 0; j < count; ++j) out[indices[j]] += values[j];
  return good;
}

uint64_t zero_at(const uint32_t* indices, uint64_t count, float* work, uint64_t n) noexcept {
  const uint64_t good = indices_in_range(indices, count, n);
  if (good == count)
    for (uint64_t j = 0; j < count; ++j) work[indices[j]] = 0;
  return good;
}

uint64_t gather(const float* x, uint64_t n, const uint32_t* indices, uint64_t count,
                float* values) noexcept {
  const uint64_t good = indices_in_range(indices, count, n);
  if (good == count)
    for (uint64_t j = 0; j < count; ++j) values[j] = x[indices[j]];
  return good;
}

}  // namespace penstock::kernels
