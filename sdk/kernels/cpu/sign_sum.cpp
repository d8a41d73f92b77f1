// Sums of signs with values. A tile of the result stays in the first-level cache while one sender
// after the other is added to it, so the result is written once for any number of senders.
#include <kernels/stream.hpp>
#include "sign_tile.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace penstock::kernels {
namespace {

// One sender's part of a tile: bits, and their numbers.
struct Part {
  const uint64_t* negative;
  const uint64_t* nonzero;  // null: no zeros
  float plus;
  float minus;

  uint64_t nonzero_word(uint64_t word) const {
    return nonzero == nullptr ? ~uint64_t{0} : nonzero[word];
  }
};

// Four floats per value of four bits.
struct Quads {
  alignas(16) float one_where_set[16][4];
};
constexpr Quads make_quads() {
  Quads quads{};
  for (unsigned bits = 0; bits < 16; ++bits)
    for (unsigned k = 0; k < 4; ++k) quads.one_where_set[bits][k] = (bits >> k) & 1 ? 1.0f : 0.0f;
  return quads;
}
constexpr Quads kQuads = make_quads();

// Puts the part's numbers into `count` elements: adds them, or (kFirst) writes them.
template <bool kFirst>
void put_portable(const Part& part, uint64_t count, float* out) {
  for (uint64_t w = 0; w * 64 < count; ++w) {
    uint64_t positive = part.nonzero_word(w) & ~part.negative[w];
    uint64_t negative = part.nonzero_word(w) & part.negative[w];
    float* const at = out + w * 64;
    const uint64_t in_word = std::min<uint64_t>(64, count - w * 64);
    for (uint64_t k = 0; k < in_word; k += 4, positive >>= 4, negative >>= 4) {
      const float* const plus = kQuads.one_where_set[positive & 15];
      const float* const minus = kQuads.one_where_set[negative & 15];
      float numbers[4];
      for (uint64_t l = 0; l < 4; ++l) numbers[l] = part.plus * plus[l] + part.minus * minus[l];
      for (uint64_t l = 0; l < std::min<uint64_t>(4, in_word - k); ++l)
        at[k + l] = (kFirst ? 0.0f : at[k + l]) + numbers[l];
    }
  }
}

// Handles the last word if it is not whole.
template <bool kFirst>
void put_rest(const Part& part, uint64_t count, float* out) {
  const uint64_t whole = count / 64;
  const Part rest{part.negative + whole, part.nonzero == nullptr ? nullptr : part.nonzero + whole,
                  part.plus, part.minus};
  put_portable<kFirst>(rest, count % 64, out + whole * 64);
}

#if defined(__x86_64__)
// Sets all bits of lane k if bit k of `bits` is set.
__attribute__((target("avx2"))) inline __m256 spread(uint64_t bits) {
  const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i all = _mm256_set1_epi32(static_cast<int>(bits & 255));
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all, lane), lane));
}
template <bool kFirst>
__attribute__((target("avx2"))) void put_avx2(const Part& part, uint64_t count, float* out) {
  const __m256 plus = _mm256_set1_ps(part.plus), minus = _mm256_set1_ps(part.minus);
  for (uint64_t w = 0; w < count / 64; ++w) {
    uint64_t negative = part.negative[w], nonzero = part.nonzero_word(w);
    for (float* at = out + w * 64; at < out + (w + 1) * 64; at += 8) {
      const __m256 value = _mm256_blendv_ps(plus, minus, spread(negative));
      const __m256 counted = _mm256_and_ps(value, spread(nonzero));
      const __m256 before = kFirst ? _mm256_setzero_ps() : _mm256_loadu_ps(at);
      _mm256_storeu_ps(at, _mm256_add_ps(before, counted));
      negative >>= 8, nonzero >>= 8;
    }
  }
  _mm256_zeroupper();  // before a tail call the compiler omits it
  put_rest<kFirst>(part, count, out);
}
template <bool kFirst>
__attribute__((target("avx512f"))) void put_avx512(const Part& part, uint64_t count, float* out) {
  const __m512 plus = _mm512_set1_ps(part.plus), minus = _mm512_set1_ps(part.minus);
  for (uint64_t w = 0; w < count / 64; ++w) {
    uint64_t negative = part.negative[w], nonzero = part.nonzero_word(w);
    for (float* at = out + w * 64; at < out + (w + 1) * 64; at += 16) {
      const __m512 value = _mm512_mask_blend_ps(static_cast<__mmask16>(negative), plus, minus);
      const __m512 counted = _mm512_maskz_mov_ps(static_cast<__mmask16>(nonzero), value);
      const __m512 before = kFirst ? _mm512_setzero_ps() : _mm512_loadu_ps(at);
      _mm512_storeu_ps(at, _mm512_add_ps(before, counted));
      negative >>= 16, nonzero >>= 16;
    }
  }
  _mm256_zeroupper();  // before a tail call the compiler omits it
  put_rest<kFirst>(part, count, out);
}
#endif

using Put = void (*)(const Part&, uint64_t, float*);

template <bool kFirst>
Put put_on(CodePath path) {
#if defined(__x86_64__)
  if (path == CodePath::kAvx2) return put_avx2<kFirst>;
  if (path == CodePath::kAvx512) return put_avx512<kFirst>;
#endif
  (void)path;
  return put_portable<kFirst>;
}

}  // namespace

void sum_valued_signs(const ValuedSigns* senders, uint64_t n_senders, uint64_t numel, uint64_t run,
                      bool clear, float* out, CodePath path, float scale) noexcept {
  const Put put_first = put_on<true>(path), add = put_on<false>(path);
  if (n_senders == 0 && clear) return (void)std::fill_n(out, numel, 0.0f);
  if (n_senders == 0 && scale == 1) return;
  const uint64_t run_words = sign_words(run);
  const bool streamed = clear && numel * sizeof(float) >= kStreamedBytes;
  alignas(64) float buffer[kTileWords * 64];
  for (Tile tile{0, 0}; tile.first_word < sign_words(numel); tile.first_word += tile.words) {
    const uint64_t which = tile.first_word / run_words;
    tile.words = std::min({kTileWords, sign_words(numel) - tile.first_word,
                           (which + 1) * run_words - tile.first_word});
    const uint64_t first = tile.first_word * 64;
    const uint64_t count = std::min(tile.words * 64, numel - first);
    float* const target = streamed ? buffer : out + first;
    for (uint64_t r = 0; r < n_senders; ++r) {
      uint64_t nonzero[kTileWords];
      const Signs& signs = senders[r].signs;
      const bool zeros = nonzero_of(signs, tile, nonzero);
      const float* const values = senders[r].values + 2 * which;
      const Part part{signs.negative + tile.first_word, zeros ? nonzero : nullptr, values[0],
                      values[1]};
      (clear && r == 0 ? put_first : add)(part, count, target);
    }
    if (scale != 1)
      for (uint64_t i = 0; i < count; ++i) target[i] *= scale;
    if (streamed) stream(out + first, buffer, count);
  }
  if (streamed) end_stream();
}

}  // namespace penstock::kernels
