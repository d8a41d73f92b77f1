// See narrow_values.hpp.
#include <kernels/narrow_values.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>

#include <kernels/convert.hpp>
#include <kernels/element/narrow.hpp>

namespace penstock::kernels {
namespace {

void saturate(uint16_t* bits, uint64_t count, uint32_t infinity) {
  for (uint64_t i = 0; i < count; ++i) bits[i] = finite_bits(bits[i], infinity);
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

float int8_scale(float largest) noexcept {
  return scale_that_reaches(largest);
}

void narrow_values(ValueType type, float* values, uint64_t count, void* target,
                   float scale) noexcept {
  if (count == 0) return;
  if (type == ValueType::kFloat32) {
    std::memcpy(target, values, count * sizeof(float));
  } else if (type == ValueType::kFloat16) {
    auto* halves = static_cast<uint16_t*>(target);
    floats_to_halves(values, halves, count);
    saturate(halves, count, kHalfInfinity);
    halves_to_floats(halves, values, count);
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
  } else if (type == ValueType::kBfloat16) {
    bfloat16s_to_floats(static_cast<const uint16_t*>(source), values, count);
  } else {
    const auto* codes = static_cast<const int8_t*>(source);
    for (uint64_t i = 0; i < count; ++i) values[i] = static_cast<float>(codes[i]) * scale;
  }
}

}  // namespace penstock::kernels
