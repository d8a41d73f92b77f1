// Results of a device and of the CPU are compared to the bit, but for NaN: a GPU gives the one NaN
// 0x7fffffff for all its arithmetic, where this processor keeps what it was given.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace penstock::kernels::cuda::check {

// What 16 bits mean. The exponent is full where they are a NaN or infinite.
enum class Half : uint16_t { kFloat16 = 0x7c00, kBfloat16 = 0x7f80 };

inline bool is_nan(uint16_t bits, Half half) {
  return (bits & 0x7fffu) > static_cast<uint16_t>(half);
}

// Floats by their bits, or because both are NaN; all else by its bits.
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

// Floats of 16 bits, likewise.
inline bool same_bits(const std::vector<uint16_t>& a, const std::vector<uint16_t>& b, Half half) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i] && !(is_nan(a[i], half) && is_nan(b[i], half))) return false;
  return true;
}

// `x` with other NaNs: those of a GPU, and in turn one that signals and one below zero. What a
// kernel makes of an array must not follow from which NaN it holds.
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
