// Counter-based normal numbers.
#include <kernels/random_normal.hpp>

#include <kernels/element/normal.hpp>

#include <cmath>

namespace penstock::kernels {

void random_normal(uint64_t seed, uint64_t gradient, uint64_t stream, uint64_t first,
                   uint64_t count, float* out) noexcept {
  const uint64_t base = normal_base(seed, gradient, stream);
  for (uint64_t k = 0; k < count; ++k) {
    const uint64_t bits = normal_bits(base, first + k);
    const double radius = std::sqrt(squared_radius(bits));
    out[k] = static_cast<float>(radius * cosine_of_turn(static_cast<uint32_t>(bits)));
  }
}

}  // namespace penstock::kernels
