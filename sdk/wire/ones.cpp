// See ones.hpp. With AVX-512 a word's ones are compressed out of sixteen places at a time. Without
// AVX-512 they are taken one by one, always in groups of four even if the word has fewer, because
// the number of ones in a word cannot be predicted.
#include <wire/ones.hpp>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace penstock::wire {
namespace {

namespace portable {

template <typename Position>
uint64_t expand(uint64_t word, Position first, Position* places) {
  uint64_t found = 0;
  for (; word != 0; word &= word - 1)
    places[found++] = first + static_cast<Position>(std::countr_zero(word));
  return found;
}
#include <wire/ones_body.inc>

}  // namespace portable

#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx2,bmi,popcnt")
namespace avx2 {

template <typename Position>
uint64_t expand(uint64_t word, Position first, Position* places) {
  const auto found = static_cast<uint64_t>(std::popcount(word));
  for (uint64_t at = 0; at < found; at += 4)
    for (uint64_t j = at; j < at + 4; ++j, word &= word - 1)
      places[j] = first + static_cast<Position>(std::countr_zero(word));
  return found;
}
#include <wire/ones_body.inc>

}  // namespace avx2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,bmi,popcnt")
namespace avx512 {

inline uint64_t expand(uint64_t word, uint32_t first, uint32_t* places) {
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  uint64_t found = 0;
  for (unsigned part = 0; part < 64; part += 16) {
    const auto ones = static_cast<__mmask16>(word >> part);
    const __m512i here = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(first + part)), lanes);
    _mm512_storeu_si512(places + found, _mm512_maskz_compress_epi32(ones, here));
    found += static_cast<uint64_t>(std::popcount(static_cast<uint32_t>(ones)));
  }
  return found;
}
#include <wire/ones_body.inc>

}  // namespace avx512
#pragma GCC pop_options
#endif

}  // namespace

template <typename Position>
uint64_t take_ones(BitString& bits, uint64_t count, Position* places,
                   kernels::CodePath path) noexcept {
#if defined(__x86_64__)
  if constexpr (sizeof(Position) == sizeof(uint32_t))
    if (path == kernels::CodePath::kAvx512) return avx512::take(bits, count, places);
  if (path != kernels::CodePath::kPortable) return avx2::take(bits, count, places);
#endif
  (void)path;
  return portable::take(bits, count, places);
}

template uint64_t take_ones(BitString&, uint64_t, uint32_t*, kernels::CodePath) noexcept;
template uint64_t take_ones(BitString&, uint64_t, uint64_t*, kernels::CodePath) noexcept;

}  // namespace penstock::wire
