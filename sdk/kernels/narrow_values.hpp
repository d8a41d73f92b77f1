// Values in four types: float32, float16, bfloat16, and int8 with one scale.
#pragma once

#include <cstdint>

namespace penstock::kernels {

enum class ValueType { kFloat32, kFloat16, kBfloat16, kInt8 };

// The scale of int8 values: `largest` / 127, so that 127 * scale is `largest`, apart from rounding.
// `largest` is the largest |value|, where a NaN counts as zero. The scale is 0 if all values are
// zero (or the quotient is), and always finite. [any]
float int8_scale(float largest) noexcept;

// Rounds values[count] to nearest even in `type`, writes them to target[count] and replaces each
// value by its rounded value. A number beyond the largest finite number of the type becomes that
// largest number. int8: multiples of `scale`, within 127; zeros for scale 0. Other types ignore
// `scale`. [any]
void narrow_values(ValueType type, float* values, uint64_t count, void* target,
                   float scale) noexcept;

// source[count] in `type` -> values[count]. [any]
void widen_values(ValueType type, const void* source, uint64_t count, float* values,
                  float scale) noexcept;

}  // namespace penstock::kernels
