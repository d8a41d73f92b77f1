// Packs eight codes of b bits, one per byte, into b bytes by three shifts inside a 64-bit register;
// the reverse steps unpack. Internal to the kernels, for both the CPU and CUDA.
#pragma once

#include <cstdint>

namespace penstock::kernels {

// `value` repeated in every field of `width` bits.
constexpr uint64_t repeated(uint64_t value, unsigned width) {
  uint64_t all = 0;
  for (unsigned at = 0; at < 64; at += width) all |= value << at;
  return all;
}
constexpr uint64_t low_bits(unsigned bits) {
  return (uint64_t{1} << bits) - 1;
}

// `join` moves the odd fields of kWidth bits, of which kUsed bits count, down to their even
// neighbours; `part` moves them back.
template <unsigned kWidth, unsigned kUsed>
constexpr uint64_t join(uint64_t x) {
  constexpr uint64_t kEven = repeated(low_bits(kUsed), 2 * kWidth);
  return (x & kEven) | ((x >> (kWidth - kUsed)) & (kEven << kUsed));
}
template <unsigned kWidth, unsigned kUsed>
constexpr uint64_t part(uint64_t x) {
  constexpr uint64_t kEven = repeated(low_bits(kUsed), 2 * kWidth);
  return (x & kEven) | ((x & (kEven << kUsed)) << (kWidth - kUsed));
}

template <unsigned kBits>
constexpr uint64_t narrow(uint64_t x) {
  return join<32, 4 * kBits>(join<16, 2 * kBits>(join<8, kBits>(x)));
}
template <unsigned kBits>
constexpr uint64_t widen(uint64_t x) {
  return part<8, kBits>(part<16, 2 * kBits>(part<32, 4 * kBits>(x)));
}

}  // namespace penstock::kernels
