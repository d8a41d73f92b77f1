// Conversions between float32 and the 16-bit types: round to nearest even, overflow to infinity,
// NaN stays NaN (quiet, upper payload bits kept). Every code path gives the same bits.
#pragma once

#include <cstdint>

namespace penstock::kernels {

// One value. 16-bit floats are carried as their bits. [any]
uint16_t float_to_half(float value) noexcept;
float half_to_float(uint16_t bits) noexcept;
uint16_t float_to_bfloat16(float value) noexcept;
float bfloat16_to_float(uint16_t bits) noexcept;

// source[count] -> target[count]; the ranges must not overlap. [any]
void floats_to_halves(const float* source, uint16_t* target, uint64_t count) noexcept;
void halves_to_floats(const uint16_t* source, float* target, uint64_t count) noexcept;
void floats_to_bfloat16s(const float* source, uint16_t* target, uint64_t count) noexcept;
void bfloat16s_to_floats(const uint16_t* source, float* target, uint64_t count) noexcept;

}  // namespace penstock::kernels
