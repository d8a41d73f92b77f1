#include <kernels/cuda/masking.hpp>

#include <random>

#include "check.hpp"

namespace penstock::kernels::cuda::check {

void check_masking(const Extent& extent) {
  for (const uint64_t n : extent.sizes) {
    const std::vector<float> before = normal(n, 5);
    std::vector<float> masked = before;
    std::vector<uint32_t> chosen;
    std::mt19937 random(static_cast<uint32_t>(n));
    for (uint64_t i = 0; i < n; i += 1 + random() % 9) {
      chosen.push_back(static_cast<uint32_t>(i));
      masked[i] = 0;
    }
    Array<uint32_t> sent(chosen);
    Array<float> momentum(n);
    both_ways(
        [&] { momentum.put(before); },
        [&](void* s) { return mask_entries(momentum.data(), n, sent.data(), chosen.size(), s); },
        [&] { REQUIRE(same_bits(momentum.host(), masked), "masked", n, chosen.size()); });
  }
}

}  // namespace penstock::kernels::cuda::check
