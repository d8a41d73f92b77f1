// Conversions between float32 and the 16-bit types: round to nearest even, overflow to infinity,
// NaN stays NaN (quiet, upper payload bits kept). Every code path gives equal bits.
#pragma once

#include <bit>
#include <cstdint>

namespace penstock::kernels {

// One value. 16-bit floats are carried as their bits. [any]
uint16_t float_to_half(float value) noexcept;
float half_to_float(uint16_t bits) noexcept;
uint16_t float_to_bfloat16(float value) noexcept;
float bfloat16_to_float(uint16_t bits) noexcept;

// The largest number of a type that each of `ranks` >= 1 ranks may send so that their sum does not
// overflow: the type's largest number divided by `ranks`, with its fraction cut to the bits of the
// type. [any]
inline float half_share(uint32_t ranks) noexcept {
  const float share = 65504.0f / static_cast<float>(ranks);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(share) & ~0x1fffu);
}
inline float bfloat16_share(uint32_t ranks) noexcept {
  const float share = 0x1.fep127f / static_cast<float>(ranks);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(share) & ~0xffffu);
}

// source[count] -> target[count]; the ranges must not overlap. [any]
void floats_to_halves(const float* source, uint16_t* target, uint64_t count) noexcept;
void halves_to_floats(const uint16_t* source, float* target, uint64_t count) noexcept;
void floats_to_bfloat16s(const float* source, uint16_t* target, uint64_t count) noexcept;
void bfloat16s_to_floats(const uint16_t* source, float* target, uint64_t count) noexcept;

}  // namespace penstock::kernels
