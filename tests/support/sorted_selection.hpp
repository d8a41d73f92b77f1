// Selection by a full sort of all entries, as kernels define it: the greater magnitude first,
// between equal ones the lower index; a NaN counts as zero.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

namespace penstock::test {

inline double magnitude(float value) {
  return std::isnan(value) ? 0.0 : std::fabs(double{value});
}

// All indices, in the order of the definition.
inline std::vector<uint32_t> sorted_order(const std::vector<float>& x) {
  std::vector<uint32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return magnitude(x[a]) > magnitude(x[b]); });
  return order;
}
inline std::vector<uint32_t> first_ascending(std::vector<uint32_t> order, uint64_t k) {
  order.resize(std::min<uint64_t>(k, order.size()));
  std::sort(order.begin(), order.end());
  return order;
}
// The indices of the k largest entries, ascending.
inline std::vector<uint32_t> largest_by_sorting(const std::vector<float>& x, uint64_t k) {
  return first_ascending(sorted_order(x), k);
}

}  // namespace penstock::test
