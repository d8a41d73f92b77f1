// See convert.hpp. F16C is used where the processor has it; the portable code gives the same bits.
#include <kernels/convert.hpp>

#include <kernels/element/half.hpp>

#include <bit>

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

#if defined(__x86_64__)
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
#if defined(__x86_64__)
  if (has_f16c()) return f16c_to_floats(source, target, count);
#endif
  portable_to_floats(source, target, count);
}

void floats_to_bfloat16s(const float* source, uint16_t* target, uint64_t count) noexcept {
  for (uint64_t i = 0; i < count; ++i)
    target[i] = bfloat16_bits(std::bit_cast<uint32_t>(source[i]));
}

void bfloat16s_to_floats(const uint16_t* source, float* target, uint64_t count) noexcept {
  for (uint64_t i = 0; i < count; ++i)
    target[i] = std::bit_cast<float>(static_cast<uint32_t>(source[i]) << 16);
}

}  // namespace penstock::kernels
