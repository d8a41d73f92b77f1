// See convert.hpp. F16C is used where the processor has it; the portable code gives equal bits.
#include <kernels/convert.hpp>

#include <kernels/element/half.hpp>

#include <bit>

#include <kernels/stream.hpp>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace penstock::kernels {

namespace {

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
