// Packs signs into planes of bits, and changes values according to their sign.
#include <kernels/sign.hpp>
#include <kernels/stream.hpp>

#include <algorithm>
#include <bit>
#include <cmath>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace penstock::kernels {
namespace {

// Two words with one bit for each of up to 64 elements: whether it is negative, and whether it is
// zero.
struct WordBits {
  uint64_t negative;
  uint64_t zero;
};

WordBits word_portable(const float* values, uint64_t count) {
  WordBits bits{0, 0};
  for (uint64_t k = 0; k < count; ++k) {
    bits.negative |= static_cast<uint64_t>(values[k] < 0.0f) << k;
    bits.zero |= static_cast<uint64_t>(values[k] == 0.0f) << k;
  }
  return bits;
}

inline WordBits read_portable(const float* values) {
#if defined(__x86_64__)  // SSE2 is part of every such processor
  WordBits bits{0, 0};
  const __m128 nothing = _mm_setzero_ps();
  for (unsigned k = 0; k < 64; k += 4) {
    const __m128 x = _mm_loadu_ps(values + k);
    bits.negative |= static_cast<uint64_t>(_mm_movemask_ps(_mm_cmplt_ps(x, nothing))) << k;
    bits.zero |= static_cast<uint64_t>(_mm_movemask_ps(_mm_cmpeq_ps(x, nothing))) << k;
  }
  return bits;
#else
  return word_portable(values, 64);
#endif
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) inline WordBits read_avx2(const float* values) {
  WordBits bits{0, 0};
  const __m256 nothing = _mm256_setzero_ps();
  for (unsigned k = 0; k < 64; k += 8) {
    const __m256 x = _mm256_loadu_ps(values + k);
    const auto negative = _mm256_movemask_ps(_mm256_cmp_ps(x, nothing, _CMP_LT_OQ));
    const auto zero = _mm256_movemask_ps(_mm256_cmp_ps(x, nothing, _CMP_EQ_OQ));
    bits.negative |= static_cast<uint64_t>(static_cast<unsigned>(negative)) << k;
    bits.zero |= static_cast<uint64_t>(static_cast<unsigned>(zero)) << k;
  }
  return bits;
}

__attribute__((target("avx512f"))) inline WordBits read_avx512(const float* values) {
  WordBits bits{0, 0};
  const __m512 nothing = _mm512_setzero_ps();
  for (unsigned k = 0; k < 64; k += 16) {
    const __m512 x = _mm512_loadu_ps(values + k);
    bits.negative |= static_cast<uint64_t>(_mm512_cmp_ps_mask(x, nothing, _CMP_LT_OQ)) << k;
    bits.zero |= static_cast<uint64_t>(_mm512_cmp_ps_mask(x, nothing, _CMP_EQ_OQ)) << k;
  }
  return bits;
}
#endif

// A sink for bits: a plane of negative elements and a list of zeros.
struct PlaneAndList {
  uint64_t* negative;
  uint32_t* zeros;
  uint64_t capacity;
  uint64_t n_zeros = 0;

  [[gnu::always_inline]] void put(uint64_t word, WordBits bits) {
    negative[word] = bits.negative;
    if (bits.zero != 0) list(word, bits.zero);
  }
  void list(uint64_t word, uint64_t zero) {
    for (; zero != 0; zero &= zero - 1, ++n_zeros)
      if (n_zeros < capacity)
        zeros[n_zeros] = static_cast<uint32_t>(word * 64 + std::countr_zero(zero));
  }
};

// A sink for bits: a plane of elements that are not zero.
struct NonzeroPlane {
  uint64_t* nonzero;
  [[gnu::always_inline]] void put(uint64_t word, WordBits bits) { nonzero[word] = ~bits.zero; }
};

template <typename Sink>
void pack_portable(const float* values, uint64_t first, uint64_t end, Sink& sink) {
  for (uint64_t w = first; w < end; ++w) sink.put(w, read_portable(values + (w - first) * 64));
}
#if defined(__x86_64__)
template <typename Sink>
__attribute__((target("avx2"))) void pack_avx2(const float* values, uint64_t first, uint64_t end,
                                               Sink& sink) {
  for (uint64_t w = first; w < end; ++w) sink.put(w, read_avx2(values + (w - first) * 64));
}
template <typename Sink>
__attribute__((target("avx512f"))) void pack_avx512(const float* values, uint64_t first,
                                                    uint64_t end, Sink& sink) {
  for (uint64_t w = first; w < end; ++w) sink.put(w, read_avx512(values + (w - first) * 64));
}
#endif

// Packs whole words, from element `first`, where `values` begin, to before `end`.
template <typename Sink>
void pack_words(const float* values, uint64_t first, uint64_t end, Sink& sink, CodePath path) {
#if defined(__x86_64__)
  if (path == CodePath::kAvx2) return pack_avx2(values, first, end, sink);
  if (path == CodePath::kAvx512) return pack_avx512(values, first, end, sink);
#endif
  (void)path;
  pack_portable(values, first, end, sink);
}

// ---- By sign ----

constexpr uint64_t kLanes = 16;

struct SignCounts {
  uint64_t positive;
  uint64_t negative;
};
[[gnu::always_inline]] inline SignCounts count_signs(const float* values, uint64_t numel) {
  SignCounts counts{0, 0};
  for (uint64_t tile = 0; tile < numel; tile += 4096) {
    const uint64_t end = std::min(tile + 4096, numel);
    int32_t above = 0, below = 0;  // as wide as the values, for full vectors
    for (uint64_t i = tile; i < end; ++i) {
      above += values[i] > 0.0f ? 1 : 0;
      below += values[i] < 0.0f ? 1 : 0;
    }
    counts.positive += static_cast<uint64_t>(above);
    counts.negative += static_cast<uint64_t>(below);
  }
  return counts;
}

// The sums by sign, in lanes. x + |x| is 2 x above zero and 0 below, and exact in double. A
// comparison instead would keep the compiler from using vectors.
[[gnu::always_inline]] inline SumsBySign sums_in_lanes(const float* values, uint64_t numel) {
  double above[kLanes] = {}, below[kLanes] = {};
  const auto add = [&](uint64_t lane, double x) {
    above[lane] += x + std::fabs(x);
    below[lane] += x - std::fabs(x);
  };
  uint64_t i = 0;
  for (; i + kLanes <= numel; i += kLanes)
    for (uint64_t lane = 0; lane < kLanes; ++lane) add(lane, values[i + lane]);
  for (uint64_t lane = 0; i < numel; ++i, ++lane) add(lane, values[i]);
  for (uint64_t width = kLanes / 2; width > 0; width /= 2)
    for (uint64_t lane = 0; lane < width; ++lane) {
      above[lane] += above[lane + width];
      below[lane] += below[lane + width];
    }
  const SignCounts counts = count_signs(values, numel);
  return {above[0] / 2, below[0] / 2, counts.positive, counts.negative};
}

[[gnu::always_inline]] inline void take_out(float* values, uint64_t numel, float plus,
                                            float minus) {
  for (uint64_t i = 0; i < numel; ++i) {
    const float x = values[i];
    values[i] = x - (x > 0.0f ? plus : x < 0.0f ? minus : 0.0f);
  }
}

SumsBySign sums_portable(const float* values, uint64_t numel) {
  return sums_in_lanes(values, numel);
}
void take_out_portable(float* values, uint64_t numel, float plus, float minus) {
  take_out(values, numel, plus, minus);
}
#if defined(__x86_64__)
__attribute__((target("avx2"))) SumsBySign sums_avx2(const float* values, uint64_t numel) {
  return sums_in_lanes(values, numel);
}
__attribute__((target("avx512f"))) SumsBySign sums_avx512(const float* values, uint64_t numel) {
  return sums_in_lanes(values, numel);
}
__attribute__((target("avx2"))) void take_out_avx2(float* values, uint64_t numel, float plus,
                                                   float minus) {
  take_out(values, numel, plus, minus);
}
__attribute__((target("avx512f"))) void take_out_avx512(float* values, uint64_t numel, float plus,
                                                        float minus) {
  take_out(values, numel, plus, minus);
}
#endif

}  // namespace

uint64_t pack_signs(const float* values, uint64_t numel, uint64_t* negative, uint32_t* zeros,
                    uint64_t capacity, CodePath path, const Fold* fold) noexcept {
  static_assert(kFoldTile % 64 == 0);
  PlaneAndList sink{negative, zeros, capacity};
  alignas(64) float room[kFoldTile];
  const uint64_t tile = fold == nullptr ? numel : kFoldTile;
  for (uint64_t begin = 0; begin < numel; begin += tile) {
    const uint64_t end = std::min(begin + tile, numel);
    const float* seen = fold == nullptr
                            ? values + begin
                            : compensate_tile(fold->from(begin), end - begin, numel, path, room);
    pack_words(seen, begin / 64, end / 64, sink, path);
  }
  end_stream();
  const uint64_t words = numel / 64;
  if (numel % 64 != 0) sink.put(words, word_portable(values + words * 64, numel % 64));
  return sink.n_zeros;
}

void pack_nonzero(const float* values, uint64_t numel, uint64_t* nonzero, CodePath path) noexcept {
  NonzeroPlane sink{nonzero};
  const uint64_t words = numel / 64;
  pack_words(values, 0, words, sink, path);
  if (numel % 64 == 0) return;
  const uint64_t live = (uint64_t{1} << numel % 64) - 1;
  nonzero[words] = live & ~word_portable(values + words * 64, numel % 64).zero;
}

SumsBySign sums_by_sign(const float* values, uint64_t numel, CodePath path) noexcept {
#if defined(__x86_64__)
  if (path == CodePath::kAvx2) return sums_avx2(values, numel);
  if (path == CodePath::kAvx512) return sums_avx512(values, numel);
#endif
  (void)path;
  return sums_portable(values, numel);
}

void take_out_by_sign(float* values, uint64_t numel, float plus, float minus,
                      CodePath path) noexcept {
#if defined(__x86_64__)
  if (path == CodePath::kAvx2) return take_out_avx2(values, numel, plus, minus);
  if (path == CodePath::kAvx512) return take_out_avx512(values, numel, plus, minus);
#endif
  (void)path;
  take_out_portable(values, numel, plus, minus);
}

}  // namespace penstock::kernels
