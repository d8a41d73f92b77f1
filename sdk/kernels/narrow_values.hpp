// Values in four types: float32, bfloat16, and float16 and int8 with one scale.
#pragma once

#include <cstdint>

namespace penstock::kernels {

enum class ValueType { kFloat32, kFloat16, kBfloat16, kInt8 };

// Whether values of a type stand for a code times a scale.
constexpr bool has_scale(ValueType type) {
  return type == ValueType::kFloat16 || type == ValueType::kInt8;
}

// The scale of values whose largest |value| is `largest`, where a NaN counts as zero. Every code
// times the scale is finite. [any]
// int8: `largest` / 127, so that 127 * scale is `largest`, apart from rounding. The scale is 0 if
// all values are zero (or the quotient is).
// float16: the power of two with which the code of `largest` has a magnitude from 2^14 to 2^15, but
// at least 2^-126, which is enough for subnormal floats, and at most 2^112.
// Other types: 1.
float value_scale(ValueType type, float largest) noexcept;
// Whether a peer's scale is legal: one that value_scale may give for finite values. [any]
bool is_scale(ValueType type, float scale) noexcept;

// Rounds values[count] to nearest even in `type`, writes them to target[count] and replaces each
// value by its rounded value. A number beyond the largest finite number of the type becomes that
// largest number. int8: multiples of `scale`, within 127; zeros for scale 0. float16: codes times
// `scale`, a power of two that value_scale may give. Other types ignore `scale`. [any]
void narrow_values(ValueType type, float* values, uint64_t count, void* target,
                   float scale) noexcept;

// source[count] in `type` -> values[count]. [any]
void widen_values(ValueType type, const void* source, uint64_t count, float* values,
                  float scale) noexcept;

}  // namespace penstock::kernels
