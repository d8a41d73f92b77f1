// Signs as planes of bits. The vote counts with bit-sliced counters: 64 elements at a time, plane k
// of a counter holding bit k of 64 counts, so that adding a voter is a ripple of word operations.
#include <kernels/sign.hpp>

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace penstock::kernels {
namespace {

// Bits of up to 64 elements: where they are negative, and where they are zero.
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

// Adds the positions of the zeros of word `word` to the list.
void list_zeros(uint64_t zero, uint64_t word, uint32_t* zeros, uint64_t capacity,
                uint64_t& n_zeros) {
  for (; zero != 0; zero &= zero - 1, ++n_zeros)
    if (n_zeros < capacity)
      zeros[n_zeros] = static_cast<uint32_t>(word * 64 + std::countr_zero(zero));
}

// The whole words; `read(values)` gives the bits of 64 elements.
#define PENSTOCK_PACK_WORDS(read)                                           \
  uint64_t n_zeros = 0;                                                     \
  for (uint64_t w = 0; w < words; ++w) {                                    \
    const WordBits bits = read(values + w * 64);                            \
    negative[w] = bits.negative;                                            \
    if (bits.zero != 0) list_zeros(bits.zero, w, zeros, capacity, n_zeros); \
  }                                                                         \
  return n_zeros

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
uint64_t pack_portable(const float* values, uint64_t words, uint64_t* negative, uint32_t* zeros,
                       uint64_t capacity) {
  PENSTOCK_PACK_WORDS(read_portable);
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
__attribute__((target("avx2"))) uint64_t pack_avx2(const float* values, uint64_t words,
                                                   uint64_t* negative, uint32_t* zeros,
                                                   uint64_t capacity) {
  PENSTOCK_PACK_WORDS(read_avx2);
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
__attribute__((target("avx512f"))) uint64_t pack_avx512(const float* values, uint64_t words,
                                                        uint64_t* negative, uint32_t* zeros,
                                                        uint64_t capacity) {
  PENSTOCK_PACK_WORDS(read_avx512);
}
#endif
#undef PENSTOCK_PACK_WORDS

uint64_t pack_words(const float* values, uint64_t words, uint64_t* negative, uint32_t* zeros,
                    uint64_t capacity, CodePath path) {
#if defined(__x86_64__)
  if (path == CodePath::kAvx2) return pack_avx2(values, words, negative, zeros, capacity);
  if (path == CodePath::kAvx512) return pack_avx512(values, words, negative, zeros, capacity);
#endif
  (void)path;
  return pack_portable(values, words, negative, zeros, capacity);
}

constexpr uint64_t kTileWords = 32;  // 2048 elements: counters and planes stay in the first cache
constexpr uint64_t kMaxPlanes = 16;  // kMaxVoters < 2^16

// Plane by plane, so that every loop over the words of a tile is a plain vector loop.
struct Counters {
  uint64_t plane[kMaxPlanes][kTileWords];

  void clear(uint64_t planes) { std::memset(plane, 0, planes * sizeof plane[0]); }

  // Adds 2^first to the elements whose bit is set; overwrites `bits`.
  void add(uint64_t* bits, uint64_t first, uint64_t planes) {
    for (uint64_t k = first; k < planes; ++k)
      for (uint64_t w = 0; w < kTileWords; ++w) {
        const uint64_t carry = plane[k][w] & bits[w];
        plane[k][w] ^= bits[w];
        bits[w] = carry;
      }
  }
  // Adds `count` to every element.
  void add_to_all(uint64_t count, uint64_t planes) {
    for (uint64_t k = 0; k < planes; ++k) {
      if (((count >> k) & 1) == 0) continue;
      uint64_t ones[kTileWords];
      std::memset(ones, 0xff, sizeof ones);
      add(ones, k, planes);
    }
  }
};

struct Tile {
  uint64_t first_word;
  uint64_t words;
};

// The plane of nonzero elements of one voter in this tile. False, without writing it, when the
// voter has no zero here.
bool nonzero_of(const Signs& voter, const Tile& tile, uint64_t* nonzero) {
  if (voter.nonzero != nullptr) {
    std::memcpy(nonzero, voter.nonzero + tile.first_word, tile.words * sizeof(uint64_t));
    return true;
  }
  const uint64_t begin = tile.first_word * 64, end = begin + tile.words * 64;
  const uint32_t* const last = voter.zeros + voter.n_zeros;
  const uint32_t* at = std::lower_bound(voter.zeros, last, begin);
  if (at == last || *at >= end) return false;
  std::memset(nonzero, 0xff, tile.words * sizeof(uint64_t));
  for (; at != last && *at < end; ++at) nonzero[(*at - begin) / 64] &= ~(uint64_t{1} << (*at % 64));
  return true;
}

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

// out[k] = 1 where bit k of positive is set, -1 where that of negative is, else 0.
void expand_word(uint64_t positive, uint64_t negative, float* out, uint64_t count) {
  uint64_t k = 0;
  for (; k + 4 <= count; k += 4, positive >>= 4, negative >>= 4) {
    const float* const plus = kQuads.one_where_set[positive & 15];
    const float* const minus = kQuads.one_where_set[negative & 15];
    for (uint64_t l = 0; l < 4; ++l) out[k + l] = plus[l] - minus[l];
  }
  for (uint64_t l = 0; k + l < count; ++l)
    out[k + l] = kQuads.one_where_set[positive & 15][l] - kQuads.one_where_set[negative & 15][l];
}

// Compares the number of votes with twice the number of nays: bits set in `positive` where it is
// larger, in `negative` where it is smaller.
void compare(const Counters& votes, const Counters& nays, uint64_t planes, uint64_t* positive,
             uint64_t* negative) {
  static constexpr uint64_t kNone[kTileWords] = {};
  uint64_t open[kTileWords];  // elements on which all higher planes agree
  std::memset(open, 0xff, sizeof open);
  std::memset(positive, 0, sizeof open);
  std::memset(negative, 0, sizeof open);
  for (uint64_t k = planes + 1; k-- > 0;) {
    const uint64_t* const vote = k < planes ? votes.plane[k] : kNone;
    const uint64_t* const nay = k > 0 ? nays.plane[k - 1] : kNone;  // twice: one plane up
    for (uint64_t w = 0; w < kTileWords; ++w) {
      const uint64_t differ = open[w] & (vote[w] ^ nay[w]);
      positive[w] |= differ & vote[w];
      negative[w] |= differ & nay[w];
      open[w] &= ~differ;
    }
  }
}

// Counts the voters of one tile.
void count_tile(const Signs* voters, uint64_t n_voters, const Tile& tile, uint64_t planes,
                Counters& votes, Counters& nays) {
  votes.clear(planes);
  nays.clear(planes);
  uint64_t without_zeros = 0;
  for (uint64_t r = 0; r < n_voters; ++r) {
    uint64_t nonzero[kTileWords] = {}, nay[kTileWords] = {};
    std::memcpy(nay, voters[r].negative + tile.first_word, tile.words * sizeof(uint64_t));
    if (nonzero_of(voters[r], tile, nonzero)) {
      for (uint64_t w = 0; w < kTileWords; ++w) nay[w] &= nonzero[w];
      votes.add(nonzero, 0, planes);
    } else {
      ++without_zeros;
    }
    nays.add(nay, 0,
             static_cast<uint64_t>(std::bit_width(r + 1)));  // r + 1 counted: no more planes
  }
  votes.add_to_all(without_zeros, planes);
}

}  // namespace

uint64_t pack_signs(const float* values, uint64_t numel, uint64_t* negative, uint32_t* zeros,
                    uint64_t capacity, CodePath path) noexcept {
  const uint64_t words = numel / 64;
  uint64_t n_zeros = pack_words(values, words, negative, zeros, capacity, path);
  if (numel % 64 != 0) {
    const WordBits bits = word_portable(values + words * 64, numel % 64);
    negative[words] = bits.negative;
    list_zeros(bits.zero, words, zeros, capacity, n_zeros);
  }
  return n_zeros;
}

void pack_nonzero(const float* values, uint64_t numel, uint64_t* nonzero) noexcept {
  for (uint64_t w = 0; w < sign_words(numel); ++w) {
    const uint64_t count = std::min<uint64_t>(64, numel - w * 64);
    const uint64_t live = count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
    nonzero[w] = live & ~word_portable(values + w * 64, count).zero;
  }
}

void take_out_signs(float* values, uint64_t numel) noexcept {
  for (uint64_t i = 0; i < numel; ++i)
    values[i] -= static_cast<float>((values[i] > 0.0f) - (values[i] < 0.0f));
}

void majority_vote(const Signs* voters, uint64_t n_voters, uint64_t numel, float* out) noexcept {
  const uint64_t planes = std::max(1, static_cast<int>(std::bit_width(n_voters)));
  Counters votes, nays;
  for (Tile tile{0, 0}; tile.first_word < sign_words(numel); tile.first_word += tile.words) {
    tile.words = std::min(kTileWords, sign_words(numel) - tile.first_word);
    count_tile(voters, n_voters, tile, planes, votes, nays);
    uint64_t positive[kTileWords], negative[kTileWords];
    compare(votes, nays, planes, positive, negative);
    for (uint64_t w = 0; w < tile.words; ++w) {
      const uint64_t first = (tile.first_word + w) * 64;
      expand_word(positive[w], negative[w], out + first, std::min<uint64_t>(64, numel - first));
    }
  }
}

}  // namespace penstock::kernels
