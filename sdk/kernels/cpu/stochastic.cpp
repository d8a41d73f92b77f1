// Compiles the stochastic rounding loops of stochastic_body.inc once per code path, and calls them
// for one block of random words after the other. The functions with vector arguments are always
// inlined, so the calling convention for vectors does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"

#include <kernels/element/rounding.hpp>
#include <kernels/prefetch.hpp>
#include <kernels/sign.hpp>
#include <kernels/stochastic.hpp>

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace penstock::kernels {
namespace {

constexpr uint64_t kLanes = 16;
constexpr uint64_t kTile = 1024;  // elements that stay in the first cache for a second look
constexpr uint64_t kRun = 64;     // elements of a loop of fixed length; a word of bits

struct Loops {
  float (*largest)(const float*, uint64_t);
  Moments (*moments)(const float*, uint64_t);
  void (*levels)(float*, uint64_t, Inverse, Grid, RandomBlock, uint32_t, bool, uint8_t*);
  void (*add_levels)(const uint8_t*, uint64_t, float, bool, float*);
  void (*choose)(const float*, uint64_t, Inverse, RandomBlock, uint32_t, uint64_t*, uint64_t*);
  void (*powers)(float*, uint64_t, uint32_t, RandomBlock, uint32_t, bool, uint8_t*);
  void (*add_powers)(const uint8_t*, uint64_t, uint32_t, bool, float*);
};

// Operations that compilers do badly, for registers of kWidth lanes: packing the sign bits of
// lanes, and the lowest bytes of integers.
template <uint64_t kWidth>
using LaneBits [[gnu::vector_size(kWidth * 4)]] = int32_t;

inline uint64_t lane_bits(const LaneBits<4>& lanes) {
  uint64_t bits = 0;
  for (unsigned l = 0; l < 4; ++l) bits |= uint64_t{static_cast<uint32_t>(lanes[l]) >> 31} << l;
  return bits;
}
template <uint64_t kWidth>
void narrow(int32_t* wide, uint64_t count, uint8_t* bytes) {
  for (uint64_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(wide[i]);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] inline uint64_t lane_bits(const LaneBits<8>& lanes) {
  return static_cast<uint32_t>(_mm256_movemask_ps((__m256)lanes));
}
// Narrows 32 integers at a time. The packing instructions work in halves of a register, so a
// permutation is needed.
template <>
[[gnu::target("avx2")]] void narrow<8>(int32_t* wide, uint64_t count, uint8_t* bytes) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i low = _mm256_set1_epi32(255);
  const auto load = [&](uint64_t i) __attribute__((target("avx2"))) {
    return _mm256_and_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(wide + i)), low);
  };
  uint64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m256i front = _mm256_packus_epi32(load(i), load(i + 8));
    const __m256i back = _mm256_packus_epi32(load(i + 16), load(i + 24));
    const __m256i packed = _mm256_packus_epi16(front, back);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes + i),
                        _mm256_permutevar8x32_epi32(packed, order));
  }
  narrow<4>(wide + i, count - i, bytes + i);
}

[[gnu::target("avx512f")]] inline uint64_t lane_bits(const LaneBits<16>& lanes) {
  return _mm512_cmplt_epi32_mask((__m512i)lanes, _mm512_setzero_si512());
}
template <>
[[gnu::target("avx512f")]] void narrow<16>(int32_t* wide, uint64_t count, uint8_t* bytes) {
  uint64_t i = 0;
  for (; i + 16 <= count; i += 16)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes + i),
                     _mm512_maskz_cvtepi32_epi8(0xFFFF, _mm512_loadu_si512(wide + i)));
  narrow<4>(wide + i, count - i, bytes + i);
}
#endif

#define PENSTOCK_BODY "stochastic_body.inc"
#include <kernels/cpu/each_path.inc>

const Loops& loops(CodePath path) {
  return PENSTOCK_OF_PATH(path, kLoops);
}

// Calls run(offset, count, block, low 32 bits of the first element) for ranges that do not cross
// into another block of random words.
template <typename Run>
void each_block(RandomKey key, uint64_t first, uint64_t numel, Run run) {
  for (uint64_t offset = 0; offset < numel;) {
    const uint64_t element = first + offset;
    const uint64_t in_block = (uint64_t{1} << 32) - (element & 0xFFFFFFFFu);
    const uint64_t count = std::min(numel - offset, in_block);
    run(offset, count, random_block(key, element), static_cast<uint32_t>(element));
    offset += count;
  }
}

}  // namespace

Moments moments(const float* values, uint64_t numel, CodePath path) noexcept {
  return loops(path).moments(values, numel);
}

float largest_magnitude(const float* values, uint64_t numel, CodePath path) noexcept {
  return loops(path).largest(values, numel);
}

float grid_step(double reach, uint32_t levels) noexcept {
  return step_that_reaches(reach, levels);
}

void round_to_levels(float* values, uint64_t numel, const Grid& grid, RandomKey key, uint64_t first,
                     bool take_out, uint8_t* codes, CodePath path) noexcept {
  if (grid.step == 0) return std::fill_n(codes, numel, uint8_t{0}), void();
  const Inverse inverse = inverse_of(grid.step, kLevelUnits);
  each_block(
      key, first, numel, [&](uint64_t at, uint64_t count, RandomBlock block, uint32_t element) {
        loops(path).levels(values + at, count, inverse, grid, block, element, take_out, codes + at);
      });
}

void add_levels(const uint8_t* codes, uint64_t numel, float step, bool clear, float* out,
                CodePath path) noexcept {
  loops(path).add_levels(codes, numel, step, clear, out);
}

void round_to_signs(float* values, uint64_t numel, float scale, RandomKey key, uint64_t first,
                    bool take_out, uint64_t* negative, uint64_t* nonzero, CodePath path) noexcept {
  const Inverse inverse = inverse_of(scale, kChoiceUnits);
  each_block(
      key, first, numel, [&](uint64_t at, uint64_t count, RandomBlock block, uint32_t element) {
        const uint64_t word = at / 64, words = count / 64, rest = count % 64;
        const float* const from = values + at;
        loops(path).choose(from, words, inverse, block, element, negative + word, nonzero + word);
        if (rest == 0) return;
        float last[64] = {};  // zeros are never chosen
        std::copy_n(from + words * 64, rest, last);
        loops(path).choose(last, 1, inverse, block, element + static_cast<uint32_t>(words * 64),
                           negative + word + words, nonzero + word + words);
      });
  if (!take_out) return;
  const float opposite[2] = {-scale, scale};
  const ValuedSigns taken{{negative, nullptr, 0, nonzero}, opposite};
  sum_valued_signs(&taken, 1, numel, sign_words(numel) * 64, false, values, path);
}

uint32_t power_base(float largest) noexcept {
  return base_of_powers(largest);
}

void round_to_powers(float* values, uint64_t numel, uint32_t base, RandomKey key, uint64_t first,
                     bool take_out, uint8_t* codes, CodePath path) noexcept {
  each_block(key, first, numel,
             [&](uint64_t at, uint64_t count, RandomBlock block, uint32_t element) {
               loops(path).powers(values + at, count, base, block, element, take_out, codes + at);
             });
}

void add_powers(const uint8_t* codes, uint64_t numel, uint32_t base, bool clear, float* out,
                CodePath path) noexcept {
  loops(path).add_powers(codes, numel, base, clear, out);
}

}  // namespace penstock::kernels
