// See convert.hpp. F16C is used where the processor has it; the portable code gives the same bits.
#include <kernels/convert.hpp>

#include <bit>

#include <kernels/cpu/stream.hpp>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace penstock::kernels {

namespace {

// The bits of NaN keep sign and upper payload; the quiet bit is set, as F16C does.
uint32_t half_bits(uint32_t bits) {
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and above round to infinity
  if (magnitude >= 0x38800000u) {                       // normal: at least 2^-14
    const uint32_t rebiased = magnitude - 0x38000000u;
    return sign | ((rebiased + 0xfffu + ((rebiased >> 13) & 1u)) >> 13);
  }
  if (magnitude <= 0x33000000u) return sign;  // 2^-25 ties to zero
  // Subnormal: the value in units of 2^-24, rounded to nearest even.
  const uint32_t shift = 126u - (magnitude >> 23);
  const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  const uint32_t half_unit = 1u << (shift - 1);
  const uint32_t odd = (mantissa >> shift) & 1u;
  return sign | ((mantissa + half_unit - 1u + odd) >> shift);
}

uint32_t float_bits(uint32_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 31) return sign | 0x7f800000u | (mantissa << 13) | (mantissa ? 0x400000u : 0u);
  if (exponent != 0) return sign | ((exponent + 112u) << 23) | (mantissa << 13);
  if (mantissa == 0) return sign;
  const uint32_t shift = static_cast<uint32_t>(std::countl_zero(mantissa)) - 21u;
  return sign | ((113u - shift) << 23) | ((mantissa << (shift + 13u)) & 0x7fffffu);
}

inline uint16_t bfloat16_bits(uint32_t bits) {
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

void portable_to_halves(const float* source, uint16_t* target, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) target[i] = float_to_half(source[i]);
}

void portable_to_floats(const uint16_t* source, float* target, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) target[i] = half_to_float(source[i]);
}

[[gnu::always_inline]] inline void narrow_all(const float* source, uint16_t* target,
                                              uint64_t count) {
  for (uint64_t i = 0; i < count; ++i)
    target[i] = bfloat16_bits(std::bit_cast<uint32_t>(source[i]));
}

[[gnu::always_inline]] inline void widen_all(const uint16_t* source, float* target,
                                             uint64_t count) {
  for (uint64_t i = 0; i < count; ++i)
    target[i] = std::bit_cast<float>(static_cast<uint32_t>(source[i]) << 16);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void avx2_to_bfloat16s(const float* source, uint16_t* target,
                                                       uint64_t count) {
  narrow_all(source, target, count);
}

__attribute__((target("avx2"))) void avx2_from_bfloat16s(const uint16_t* source, float* target,
                                                         uint64_t count) {
  widen_all(source, target, count);
}

bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
}

__attribute__((target("f16c,avx"))) void f16c_to_halves(const float* source, uint16_t* target,
                                                        uint64_t count) {
  uint64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(source + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target + i), halves);
  }
  portable_to_halves(source + i, target + i, count - i);
}

__attribute__((target("f16c,avx"))) void f16c_to_floats(const uint16_t* source, float* target,
                                                        uint64_t count) {
  uint64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i));
    _mm256_storeu_ps(target + i, _mm256_cvtph_ps(halves));
  }
  portable_to_floats(source + i, target + i, count - i);
}

bool has_f16c() {
  static const bool has = __builtin_cpu_supports("f16c") && __builtin_cpu_supports("avx");
  return has;
}
#endif

void from_halves(const uint16_t* source, float* target, uint64_t count) {
#if defined(__x86_64__)
  if (has_f16c()) return f16c_to_floats(source, target, count);
#endif
  portable_to_floats(source, target, count);
}

void from_bfloat16s(const uint16_t* source, float* target, uint64_t count) {
#if defined(__x86_64__)
  if (has_avx2()) return avx2_from_bfloat16s(source, target, count);
#endif
  widen_all(source, target, count);
}

}  // namespace

uint16_t float_to_half(float value) noexcept {
  return static_cast<uint16_t>(half_bits(std::bit_cast<uint32_t>(value)));
}

float half_to_float(uint16_t bits) noexcept {
  return std::bit_cast<float>(float_bits(bits));
}

uint16_t float_to_bfloat16(float value) noexcept {
  return bfloat16_bits(std::bit_cast<uint32_t>(value));
}

float bfloat16_to_float(uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

void floats_to_halves(const float* source, uint16_t* target, uint64_t count) noexcept {
#if defined(__x86_64__)
  if (has_f16c()) return f16c_to_halves(source, target, count);
#endif
  portable_to_halves(source, target, count);
}

void halves_to_floats(const uint16_t* source, float* target, uint64_t count) noexcept {
  compute_streamed(target, count, [&](float* to, uint64_t first, uint64_t some) {
    from_halves(source + first, to, some);
  });
}

void floats_to_bfloat16s(const float* source, uint16_t* target, uint64_t count) noexcept {
#if defined(__x86_64__)
  if (has_avx2()) return avx2_to_bfloat16s(source, target, count);
#endif
  narrow_all(source, target, count);
}

void bfloat16s_to_floats(const uint16_t* source, float* target, uint64_t count) noexcept {
  compute_streamed(target, count, [&](float* to, uint64_t first, uint64_t some) {
    from_bfloat16s(source + first, to, some);
  });
}

}  // namespace penstock::kernels
