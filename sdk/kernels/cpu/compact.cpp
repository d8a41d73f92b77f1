// See compact.hpp. A compaction makes a 64-bit mask of 64 entries and scans its bits: if few
// entries pass, the loop runs at the speed of memory. Blocks with many passing entries compress to
// a register and store the whole register; a compress-store to memory is never used, because some
// processors run it as microcode.
#include <kernels/cpu/compact.hpp>
#include <kernels/prefetch.hpp>

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace penstock::kernels {
namespace {

constexpr uint64_t kBlock = kCompactRun;
constexpr uint64_t kFetchAhead = 4096;  // bytes; twice as far and half as far are slower

// Compacts entries x[0, n) one by one, without branches on the data. There may be at most kBlock
// entries, so that the writes stay inside the pad.
inline uint64_t compact_block(const float* x, uint64_t n, uint32_t offset, uint32_t threshold,
                              uint32_t* indices, uint32_t* bits, uint64_t count) {
  for (uint64_t i = 0; i < n; ++i) {
    indices[count] = offset + static_cast<uint32_t>(i);
    bits[count] = std::bit_cast<uint32_t>(x[i]);
    count += magnitude_key(x[i]) >= threshold ? 1 : 0;
  }
  return count;
}

uint64_t compact_portable(const float* x, uint64_t n, uint64_t stride, uint32_t offset,
                          uint32_t threshold, uint32_t* indices, uint32_t* bits, uint64_t count,
                          uint64_t capacity) {
  for (uint64_t begin = 0; begin < n; begin += kBlock, x += stride) {
    const uint64_t size = std::min(kBlock, n - begin);
    if (size == kBlock) {
      uint32_t block[kBlock];
      std::memcpy(block, x, sizeof block);
      int32_t any = 0;  // signed, so that the compiler finds a vector compare
      for (uint64_t i = 0; i < kBlock; ++i)
        any |= static_cast<int32_t>(block[i] & 0x7fffffffu) >= static_cast<int32_t>(threshold);
      if (any == 0) continue;
    }
    count = compact_block(x, size, offset + static_cast<uint32_t>(begin), threshold, indices, bits,
                          count);
    if (count > capacity) return count;
  }
  return count;
}

uint64_t keep_between(uint32_t* indices, uint32_t* bits, uint64_t begin, uint64_t count,
                      uint32_t threshold, uint64_t kept) {
  for (uint64_t j = begin; j < count; ++j) {
    const uint32_t index = indices[j], entry = bits[j];
    indices[kept] = index;
    bits[kept] = entry;
    kept += key_of_bits(entry) >= threshold ? 1 : 0;
  }
  return kept;
}

uint64_t keep_portable(uint32_t* indices, uint32_t* bits, uint64_t count, uint32_t threshold) {
  return keep_between(indices, bits, 0, count, threshold, 0);
}

uint64_t reach_portable(const uint32_t* bits, uint64_t count, uint32_t threshold) {
  int32_t reached = 0;  // signed, so that the compiler finds a vector compare
  for (uint64_t j = 0; j < count; ++j)
    reached += static_cast<int32_t>(key_of_bits(bits[j])) >= static_cast<int32_t>(threshold);
  return static_cast<uint64_t>(reached);
}

#if defined(__x86_64__)

// Appends the entries of `mask`, always two at a time, even if only one is left: at the densities
// of sparse methods a block has 0 to 2 entries, in no order that a branch predictor could learn.
inline uint64_t append_bits(const float* x, uint64_t mask, uint32_t offset, uint32_t* indices,
                            uint32_t* bits, uint64_t count) {
  const uint64_t after = count + static_cast<uint64_t>(std::popcount(mask));
  do {
    for (uint64_t j = 0; j < 2; ++j) {
      const uint64_t i = static_cast<uint64_t>(std::countr_zero(mask)) % kBlock;
      indices[count + j] = offset + static_cast<uint32_t>(i);
      bits[count + j] = std::bit_cast<uint32_t>(x[i]);
      mask &= mask - 1;
    }
    count += 2;
  } while (mask != 0);
  return after;
}

// Prefetches the data that comes 4 KiB later, because the processor's own prefetch covers less time
// than a mispredicted branch takes. Behind the end the prefetch has no effect.
inline void fetch_ahead(const float* x) {
  const auto address = reinterpret_cast<uintptr_t>(x) + kFetchAhead;
  for (uint64_t line = 0; line < kBlock * sizeof(float); line += 64)
    prefetch_line(reinterpret_cast<const void*>(address + line));
}

__attribute__((target("avx2,bmi,popcnt"))) uint64_t compact_avx2(
    const float* x, uint64_t n, uint64_t stride, uint32_t offset, uint32_t threshold,
    uint32_t* indices, uint32_t* bits, uint64_t count, uint64_t capacity) {
  const __m256i below = _mm256_set1_epi32(static_cast<int>(threshold - 1));
  const __m256i infinity = _mm256_set1_epi32(static_cast<int>(kInfinityKey));
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  uint64_t begin = 0;
  for (; begin + kBlock <= n; begin += kBlock, x += stride, offset += kBlock) {
    fetch_ahead(x);
    uint64_t mask = 0;
    for (int part = 0; part < 8; ++part) {
      const __m256i raw = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + 8 * part));
      const __m256i key = _mm256_and_si256(raw, magnitude);
      const __m256i pass =
          _mm256_andnot_si256(_mm256_cmpgt_epi32(key, infinity), _mm256_cmpgt_epi32(key, below));
      const auto eight = static_cast<uint8_t>(_mm256_movemask_ps(_mm256_castsi256_ps(pass)));
      mask |= static_cast<uint64_t>(eight) << (8 * part);
    }
    count = append_bits(x, mask, offset, indices, bits, count);
    if (count > capacity) return count;
  }
  return compact_block(x, n - begin, offset, threshold, indices, bits, count);
}

__attribute__((target("avx512f,bmi,popcnt"))) uint64_t compact_avx512(
    const float* x, uint64_t n, uint64_t stride, uint32_t offset, uint32_t threshold,
    uint32_t* indices, uint32_t* bits, uint64_t count, uint64_t capacity) {
  constexpr int kManyPass = 12;  // from this number on compressing is cheaper than scanning bits
  const __m512i lowest = _mm512_set1_epi32(static_cast<int>(threshold));
  const __m512i range = _mm512_set1_epi32(static_cast<int>(kInfinityKey - threshold));
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  uint64_t begin = 0;
  for (; begin + kBlock <= n; begin += kBlock, x += stride, offset += kBlock) {
    __m512i raw[4];
    fetch_ahead(x);
    uint64_t mask = 0;
    for (int part = 0; part < 4; ++part) {
      raw[part] = _mm512_loadu_si512(x + 16 * part);
      const __m512i key = _mm512_and_si512(raw[part], magnitude);
      // threshold <= key <= infinity in one unsigned compare
      const __mmask16 pass = _mm512_cmple_epu32_mask(_mm512_sub_epi32(key, lowest), range);
      mask |= static_cast<uint64_t>(pass) << (16 * part);
    }
    if (std::popcount(mask) < kManyPass) {
      count = append_bits(x, mask, offset, indices, bits, count);
    } else {
      for (int part = 0; part < 4; ++part) {
        const auto pass = static_cast<__mmask16>(mask >> (16 * part));
        const uint32_t first = offset + 16 * static_cast<uint32_t>(part);
        const __m512i index = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(first)), lanes);
        _mm512_storeu_si512(indices + count, _mm512_maskz_compress_epi32(pass, index));
        _mm512_storeu_si512(bits + count, _mm512_maskz_compress_epi32(pass, raw[part]));
        count += static_cast<uint64_t>(std::popcount(static_cast<uint32_t>(pass)));
      }
    }
    if (count > capacity) return count;
  }
  return compact_block(x, n - begin, offset, threshold, indices, bits, count);
}

// A register is stored at or before the place where it was read, so no unread entry is overwritten.
__attribute__((target("avx512f,popcnt"))) uint64_t keep_avx512(uint32_t* indices, uint32_t* bits,
                                                               uint64_t count, uint32_t threshold) {
  const __m512i lowest = _mm512_set1_epi32(static_cast<int>(threshold));
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  uint64_t kept = 0, j = 0;
  for (; j + 16 <= count; j += 16) {
    const __m512i entry = _mm512_loadu_si512(bits + j), index = _mm512_loadu_si512(indices + j);
    const __mmask16 reach = _mm512_cmpge_epu32_mask(_mm512_and_si512(entry, magnitude), lowest);
    _mm512_storeu_si512(indices + kept, _mm512_maskz_compress_epi32(reach, index));
    _mm512_storeu_si512(bits + kept, _mm512_maskz_compress_epi32(reach, entry));
    kept += static_cast<uint64_t>(std::popcount(static_cast<uint32_t>(reach)));
  }
  return keep_between(indices, bits, j, count, threshold, kept);
}

__attribute__((target("avx2,popcnt"))) uint64_t reach_avx2(const uint32_t* bits, uint64_t count,
                                                           uint32_t threshold) {
  const __m256i below = _mm256_set1_epi32(static_cast<int>(threshold - 1));
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  uint64_t reached = 0;
  for (uint64_t j = 0; j < count; j += 8) {
    const __m256i entry = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bits + j));
    const __m256i reach = _mm256_cmpgt_epi32(_mm256_and_si256(entry, magnitude), below);
    const auto eight = static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(reach)));
    reached += static_cast<uint64_t>(std::popcount(eight));
  }
  return reached;
}

__attribute__((target("avx512f,popcnt"))) uint64_t reach_avx512(const uint32_t* bits,
                                                                uint64_t count,
                                                                uint32_t threshold) {
  const __m512i lowest = _mm512_set1_epi32(static_cast<int>(threshold));
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  uint64_t reached = 0;
  for (uint64_t j = 0; j < count; j += 16) {
    const __m512i key = _mm512_and_si512(_mm512_loadu_si512(bits + j), magnitude);
    const __mmask16 reach = _mm512_cmpge_epu32_mask(key, lowest);
    reached += static_cast<uint64_t>(std::popcount(static_cast<uint32_t>(reach)));
  }
  return reached;
}

#endif

}  // namespace

uint64_t drop_later_ties(uint32_t* indices, uint32_t* bits, uint64_t count, uint32_t threshold,
                         uint64_t ties) noexcept {
  uint64_t kept = 0;
  for (uint64_t j = 0; j < count; ++j) {
    const bool tie = key_of_bits(bits[j]) == threshold;
    indices[kept] = indices[j];
    bits[kept] = bits[j];
    kept += tie && ties == 0 ? 0 : 1;
    ties -= tie && ties > 0 ? 1 : 0;
  }
  return kept;
}

Reach reach_on(CodePath path) noexcept {
#if defined(__x86_64__)
  if (path == CodePath::kAvx2) return reach_avx2;
  if (path == CodePath::kAvx512) return reach_avx512;
#endif
  (void)path;
  return reach_portable;
}

Keep keep_on(CodePath path) noexcept {
#if defined(__x86_64__)
  if (path == CodePath::kAvx512) return keep_avx512;
#endif
  (void)path;
  return keep_portable;
}

Compact compact_on(CodePath path) noexcept {
#if defined(__x86_64__)
  if (path == CodePath::kAvx2) return compact_avx2;
  if (path == CodePath::kAvx512) return compact_avx512;
#endif
  (void)path;
  return compact_portable;
}

}  // namespace penstock::kernels
