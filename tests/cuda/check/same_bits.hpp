// Compares results of a device and of the CPU to the bit, except NaN. A GPU returns the NaN
// 0x7fffffff from all arithmetic, but this processor keeps the NaN of the operand.
#pragma once

#include <kernels/narrow_values.hpp>

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace penstock::kernels::cuda::check {

// The types of 16 bits. The value is the mask of the exponent, which is full in a NaN or infinity.
enum class Half : uint16_t { kFloat16 = 0x7c00, kBfloat16 = 0x7f80 };

inline bool is_nan(uint16_t bits, Half half) {
  return (bits & 0x7fffu) > static_cast<uint16_t>(half);
}

// Floats are equal if their bits are equal or both are NaN. Other types are compared by their bits.
template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  if (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0) return true;
  if constexpr (std::is_floating_point_v<T>) {
    for (std::size_t i = 0; i < a.size(); ++i)
      if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0 && !(a[i] != a[i] && b[i] != b[i]))
        return false;
    return true;
  }
  return false;
}

// The comparison for floats of 16 bits.
inline bool same_bits(const std::vector<uint16_t>& a, const std::vector<uint16_t>& b, Half half) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i] && !(is_nan(a[i], half) && is_nan(b[i], half))) return false;
  return true;
}

// The comparison for values in the type in which they travel, as bytes.
inline bool same_bits(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b,
                      ValueType type) {
  const auto as = []<typename T>(const std::vector<uint8_t>& bytes, T) {
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  if (a.size() != b.size()) return false;
  if (type == ValueType::kInt8) return same_bits(a, b);
  if (type == ValueType::kFloat32) return same_bits(as(a, float{}), as(b, float{}));
  const Half half = type == ValueType::kFloat16 ? Half::kFloat16 : Half::kBfloat16;
  return same_bits(as(a, uint16_t{}), as(b, uint16_t{}), half);
}

// `x` with other NaNs, by turns: a GPU's NaN, a signalling NaN and a negative NaN. The result of a
// kernel must not depend on the NaN in an array.
inline std::vector<float> with_other_nans(std::vector<float> x) {
  constexpr uint32_t kOthers[] = {0x7fffffffu, 0x7f800001u, 0xffc00000u};
  uint32_t turn = 0;
  for (float& value : x)
    if (value != value) {
      const uint32_t bits = kOthers[turn++ % 3];
      std::memcpy(&value, &bits, sizeof value);
    }
  return x;
}

}  // namespace penstock::kernels::cuda::check
