// See narrow_values.hpp.
#include <kernels/narrow_values.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include <kernels/convert.hpp>
#include <kernels/element/narrow.hpp>

namespace penstock::kernels {
namespace {

void saturate(uint16_t* bits, uint64_t count, uint32_t infinity) {
  for (uint64_t i = 0; i < count; ++i) bits[i] = finite_bits(bits[i], infinity);
}

// Exact for a power of two, unless the product is subnormal: such a product is zero in float16.
void multiply(float* values, uint64_t count, float power) {
  if (power == 1) return;
  for (uint64_t i = 0; i < count; ++i) values[i] *= power;
}

void narrow_to_int8(float* values, uint64_t count, int8_t* target, float scale) {
  if (scale == 0) {
    std::memset(target, 0, count);
    std::fill(values, values + count, 0.0f);
    return;
  }
  for (uint64_t i = 0; i < count; ++i) {
    const float code = int8_code(values[i], scale);
    target[i] = static_cast<int8_t>(code);
    values[i] = code * scale;
  }
}

}  // namespace

float value_scale(ValueType type, float largest) noexcept {
  if (type == ValueType::kInt8) return scale_that_reaches(largest);
  return type == ValueType::kFloat16 ? power_of_two_below(largest) : 1;
}

bool is_scale(ValueType type, float scale) noexcept {
  if (type == ValueType::kInt8) return scale >= 0 && std::isfinite(scale * kLargestCode);
  if (type != ValueType::kFloat16) return scale == 1;
  const auto bits = std::bit_cast<uint32_t>(scale);
  constexpr uint32_t kFraction = (1u << 23) - 1;
  return (bits & kFraction) == 0 && bits >> 23 >= 1 && bits >> 23 <= kMostHalfScale;
}

void narrow_values(ValueType type, float* values, uint64_t count, void* target,
                   float scale) noexcept {
  if (count == 0) return;
  if (type == ValueType::kFloat32) {
    std::memcpy(target, values, count * sizeof(float));
  } else if (type == ValueType::kFloat16) {
    auto* halves = static_cast<uint16_t*>(target);
    multiply(values, count, inverse_power(scale));
    floats_to_halves(values, halves, count);
    saturate(halves, count, kHalfInfinity);
    halves_to_floats(halves, values, count);
    multiply(values, count, scale);
  } else if (type == ValueType::kBfloat16) {
    auto* halves = static_cast<uint16_t*>(target);
    floats_to_bfloat16s(values, halves, count);
    saturate(halves, count, kBfloat16Infinity);
    bfloat16s_to_floats(halves, values, count);
  } else {
    narrow_to_int8(values, count, static_cast<int8_t*>(target), scale);
  }
}

void widen_values(ValueType type, const void* source, uint64_t count, float* values,
                  float scale) noexcept {
  if (count == 0) return;
  if (type == ValueType::kFloat32) {
    std::memcpy(values, source, count * sizeof(float));
  } else if (type == ValueType::kFloat16) {
    halves_to_floats(static_cast<const uint16_t*>(source), values, count);
    multiply(values, count, scale);
  } else if (type == ValueType::kBfloat16) {
    bfloat16s_to_floats(static_cast<const uint16_t*>(source), values, count);
  } else {
    const auto* codes = static_cast<const int8_t*>(source);
    for (uint64_t i = 0; i < count; ++i) values[i] = static_cast<float>(codes[i]) * scale;
  }
}

}  // namespace penstock::kernels
