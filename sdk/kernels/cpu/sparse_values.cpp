// See sparse_values.hpp.
#include <kernels/sparse_values.hpp>

#include <cstring>
#include <limits>

#include <kernels/convert.hpp>

namespace penstock::kernels {
namespace {

constexpr float kLargestCode = 127;
// Adding and subtracting it rounds |x| < 2^22 to an integer, ties to even.
constexpr float kRounder = 12582912.0f;

// Infinity becomes the largest finite number of the type, which is the number below it.
void saturate(uint16_t* bits, uint64_t count, uint16_t infinity) {
  for (uint64_t i = 0; i < count; ++i)
    bits[i] = static_cast<uint16_t>(bits[i] - ((bits[i] & 0x7fffu) == infinity ? 1 : 0));
}

void narrow_to_int8(float* values, uint64_t count, int8_t* target, float scale) {
  if (scale == 0) {
    std::memset(target, 0, count);
    std::fill(values, values + count, 0.0f);
    return;
  }
  for (uint64_t i = 0; i < count; ++i) {
    float code = values[i] / scale;
    code = code == code ? code : 0;  // NaN
    code = std::min(std::max(code, -kLargestCode), kLargestCode);
    code = (code + kRounder) - kRounder;
    target[i] = static_cast<int8_t>(code);
    values[i] = code * scale;
  }
}

}  // namespace

float int8_scale(float largest) noexcept {
  constexpr float kMost = std::numeric_limits<float>::max();
  const float scale = std::min(largest, kMost) / kLargestCode;
  return scale * kLargestCode <= kMost ? scale : std::nextafter(scale, 0.0f);
}

void narrow_values(ValueType type, float* values, uint64_t count, void* target,
                   float scale) noexcept {
  if (count == 0) return;
  if (type == ValueType::kFloat32) {
    std::memcpy(target, values, count * sizeof(float));
  } else if (type == ValueType::kFloat16) {
    auto* halves = static_cast<uint16_t*>(target);
    floats_to_halves(values, halves, count);
    saturate(halves, count, 0x7c00);
    halves_to_floats(halves, values, count);
  } else if (type == ValueType::kBfloat16) {
    auto* halves = static_cast<uint16_t*>(target);
    floats_to_bfloat16s(values, halves, count);
    saturate(halves, count, 0x7f80);
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
