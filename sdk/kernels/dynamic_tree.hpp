// The dynamic tree of Dettmers: 256 numbers in [-1, 1], dense near zero, of nearly equal relative
// precision over seven decades. The compressor int8 and its kernels use it, on the CPU and on CUDA.
#pragma once

#include <bit>
#include <cstdint>

namespace penstock::kernels {

inline constexpr int32_t kTreeZero = 127;      // the code of 0
inline constexpr int32_t kTreePositive = 128;  // number of codes above it

struct DynamicTree {
  // Indexed by code, ascending. Code 127 is 0, code 255 is 1. Decade d of 7, from 10^-7..10^-6 to
  // 0.1..1, has the middles of 2^d equal cells; codes 0 to 126 are the negatives of these numbers.
  float values[256];
  // Levels count from zero: level l is code kTreeZero + l. A magnitude above ends[l] is nearer to
  // level l + 1 than to l: ends[l] is the greatest float that is not above the middle between the
  // two levels. The last end is above all magnitudes.
  float ends[kTreePositive + 1];
};

constexpr DynamicTree make_dynamic_tree() {
  DynamicTree tree{};
  double decade = 1e-6;
  int32_t next = kTreeZero + 1;
  for (int32_t d = 0; d < 7; ++d, decade *= 10) {
    const int32_t cells = 1 << d;
    for (int32_t j = 0; j < cells; ++j, ++next) {
      const auto value = static_cast<float>(decade * (0.1 + 0.9 * (j + 0.5) / cells));
      tree.values[next] = value;
      tree.values[2 * kTreeZero - next] = -value;
    }
  }
  tree.values[255] = 1;
  for (int32_t l = 0; l < kTreePositive; ++l) {
    const double middle =
        (double{tree.values[kTreeZero + l]} + double{tree.values[kTreeZero + l + 1]}) / 2;
    auto below = static_cast<float>(middle);
    if (double{below} > middle) below = std::bit_cast<float>(std::bit_cast<uint32_t>(below) - 1);
    tree.ends[l] = below;
  }
  tree.ends[kTreePositive] = 2;
  return tree;
}

// The code of a level. The number -1 has no code of its own.
[[gnu::always_inline]] constexpr uint8_t tree_code(int32_t level, bool is_negative) {
  const int32_t below = kTreeZero - (level < kTreeZero ? level : kTreeZero);
  return static_cast<uint8_t>(is_negative ? below : kTreeZero + level);
}

}  // namespace penstock::kernels
