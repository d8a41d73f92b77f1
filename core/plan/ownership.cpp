#include "core/plan/ownership.hpp"

#include <algorithm>
#include <numeric>

namespace penstock {
namespace {

// A smaller part is not worth a message's header and a separate call.
constexpr uint64_t kLeastPart = 1024;

bool is_cut(const OwnableGradient& gradient, uint32_t n_owners) {
  return n_owners > 1 && gradient.alignment != 0 &&
         gradient.numel / n_owners >= std::max(gradient.alignment, kLeastPart);
}

// The unit of boundaries: whole rows, if each owner gets at least one row.
uint64_t unit_of(const OwnableGradient& gradient, uint32_t n_owners) {
  const uint64_t common = std::gcd(gradient.alignment, gradient.cols);
  const uint64_t rows_each = gradient.cols / common;  // * alignment = lcm
  if (gradient.numel / gradient.alignment / n_owners >= rows_each)
    return gradient.alignment * rows_each;
  return gradient.alignment;
}

}  // namespace

Ownership share_out(const std::vector<OwnableGradient>& gradients, uint32_t n_owners) {
  Ownership ownership(gradients.size());
  std::vector<uint64_t> held(n_owners);
  std::vector<size_t> whole;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const uint64_t numel = gradients[i].numel;
    if (!is_cut(gradients[i], n_owners)) {
      whole.push_back(i);
      continue;
    }
    const uint64_t unit = unit_of(gradients[i], n_owners);
    const uint64_t units = (numel + unit - 1) / unit;
    for (uint32_t owner = 0; owner < n_owners; ++owner) {
      const uint64_t first = std::min(units * owner / n_owners * unit, numel);
      const uint64_t end = std::min(units * (owner + 1) / n_owners * unit, numel);
      if (end == first) continue;
      ownership[i].push_back({first, end - first, owner});
      held[owner] += end - first;
    }
  }
  std::stable_sort(whole.begin(), whole.end(),
                   [&](size_t a, size_t b) { return gradients[a].numel > gradients[b].numel; });
  for (const size_t i : whole) {
    const auto least = std::min_element(held.begin(), held.end());
    ownership[i] = {{0, gradients[i].numel, static_cast<uint32_t>(least - held.begin())}};
    *least += gradients[i].numel;
  }
  return ownership;
}

}  // namespace penstock
