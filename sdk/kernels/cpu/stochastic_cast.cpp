// Compiles the loops of stochastic_cast_body.inc once per code path, and calls them for one block
// of random words after the other.
#include <kernels/element/stochastic_cast.hpp>
#include <kernels/stochastic_cast.hpp>

#include <algorithm>

namespace penstock::kernels {
namespace {

#define PENSTOCK_BODY "stochastic_cast_body.inc"
#include <kernels/cpu/each_path.inc>

}  // namespace

void cast_by_chance(ValueType type, const float* values, uint64_t count, RandomKey key,
                    uint64_t first, uint16_t* target, CodePath path) noexcept {
  const auto cast = type == ValueType::kFloat16 ? PENSTOCK_OF_PATH(path, to_halves)
                                                : PENSTOCK_OF_PATH(path, to_bfloat16s);
  while (count > 0) {
    const uint64_t some = std::min(count, (uint64_t{1} << 32) - (first & 0xFFFFFFFFu));
    cast(values, some, random_block(key, first), static_cast<uint32_t>(first), target);
    values += some;
    target += some;
    first += some;
    count -= some;
  }
}

}  // namespace penstock::kernels
