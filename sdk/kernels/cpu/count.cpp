// See count.hpp. Nearly all entries are below the lowest threshold and cost one comparison; every
// other entry is compared with all thresholds in one or two registers. If many entries reach the
// lowest threshold, each threshold is compared with whole registers of entries instead.
#include <kernels/cpu/count.hpp>

#include <algorithm>
#include <bit>

#include <kernels/cpu/compact.hpp>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace penstock::kernels {
namespace {

void count_portable(const float* x, uint64_t n, const ThresholdKeys& thresholds, int32_t* counts) {
  constexpr uint64_t kBlock = 512;
  int32_t keys[kBlock];
  for (uint64_t begin = 0; begin < n; begin += kBlock) {
    const uint64_t size = std::min(kBlock, n - begin);
    for (uint64_t i = 0; i < size; ++i) keys[i] = static_cast<int32_t>(magnitude_key(x[begin + i]));
    int32_t most = 0;
    for (uint64_t i = 0; i < size; ++i) most = std::max(most, keys[i]);
    if (most < thresholds.lowest) continue;
    for (uint64_t j = 0; j < thresholds.n; ++j) {
      int32_t passed = 0;
      for (uint64_t i = 0; i < size; ++i) passed += keys[i] >= thresholds.keys[j] ? 1 : 0;
      counts[j] += passed;
    }
  }
}

#if defined(__x86_64__)

constexpr uint64_t kBlock = 64;
constexpr int kManyPass = 12;  // from this number on comparing whole registers is cheaper

__attribute__((target("avx2"))) inline __m256i keys_of(const float* x) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
  const __m256i key = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
  const __m256i infinity = _mm256_set1_epi32(static_cast<int>(kInfinityKey));
  return _mm256_andnot_si256(_mm256_cmpgt_epi32(key, infinity), key);
}

__attribute__((target("avx2"))) inline int32_t sum_of(__m256i lanes) {
  alignas(32) int32_t values[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(values), lanes);
  int32_t sum = 0;
  for (const int32_t value : values) sum += value;
  return sum;
}

__attribute__((target("avx2,popcnt"))) void count_avx2(const float* x, uint64_t n,
                                                       const ThresholdKeys& thresholds,
                                                       int32_t* counts) {
  const __m256i below = _mm256_set1_epi32(thresholds.lowest - 1);
  const __m256i one = _mm256_set1_epi32(1);
  // key >= t as key > t - 1
  __m256i limits[2], passed[2];
  for (int half = 0; half < 2; ++half) {
    limits[half] = _mm256_sub_epi32(
        _mm256_load_si256(reinterpret_cast<const __m256i*>(thresholds.keys) + half), one);
    passed[half] = _mm256_setzero_si256();
  }
  const bool many = thresholds.n > 8;
  uint64_t begin = 0;
  for (; begin + kBlock <= n; begin += kBlock) {
    uint64_t mask = 0;
    for (uint64_t part = 0; part < 8; ++part) {
      const __m256i pass = _mm256_cmpgt_epi32(keys_of(x + begin + 8 * part), below);
      const auto eight = static_cast<uint8_t>(_mm256_movemask_ps(_mm256_castsi256_ps(pass)));
      mask |= static_cast<uint64_t>(eight) << (8 * part);
    }
    if (std::popcount(mask) < kManyPass) {
      for (; mask != 0; mask &= mask - 1) {
        const auto i = static_cast<uint64_t>(std::countr_zero(mask));
        const __m256i key = _mm256_set1_epi32(std::bit_cast<int32_t>(x[begin + i]) & 0x7fffffff);
        passed[0] = _mm256_sub_epi32(passed[0], _mm256_cmpgt_epi32(key, limits[0]));
        if (many) passed[1] = _mm256_sub_epi32(passed[1], _mm256_cmpgt_epi32(key, limits[1]));
      }
      continue;
    }
    __m256i keys[8];
    for (uint64_t part = 0; part < 8; ++part) keys[part] = keys_of(x + begin + 8 * part);
    for (uint64_t j = 0; j < thresholds.n; ++j) {
      const __m256i limit = _mm256_set1_epi32(thresholds.keys[j] - 1);
      __m256i sum = _mm256_setzero_si256();
      for (const __m256i& key : keys) sum = _mm256_sub_epi32(sum, _mm256_cmpgt_epi32(key, limit));
      counts[j] += sum_of(sum);
    }
  }
  alignas(32) int32_t singles[ThresholdKeys::kMost];
  for (int half = 0; half < 2; ++half)
    _mm256_store_si256(reinterpret_cast<__m256i*>(singles) + half, passed[half]);
  for (uint64_t j = 0; j < thresholds.n; ++j) counts[j] += singles[j];
  _mm256_zeroupper();  // before a tail call the compiler omits it
  count_portable(x + begin, n - begin, thresholds, counts);
}

#endif

ThresholdKeys keys_of_thresholds(std::span<const float> thresholds) {
  ThresholdKeys result{};
  result.n = thresholds.size();
  result.lowest = std::bit_cast<int32_t>(kInfinityKey + 1);
  std::fill_n(result.keys, ThresholdKeys::kMost, result.lowest);
  for (uint64_t j = 0; j < result.n; ++j) {
    result.keys[j] = static_cast<int32_t>(threshold_key(thresholds[j]));
    result.lowest = std::min(result.lowest, result.keys[j]);
  }
  return result;
}

}  // namespace

CountTile count_on(CodePath path) noexcept {
#if defined(__x86_64__)
  if (path != CodePath::kPortable) return count_avx2;  // 512 bits gain nothing at memory speed
#endif
  (void)path;
  return count_portable;
}

Counter::Counter(std::span<const float> thresholds, uint64_t* counts, CodePath path)
    : thresholds_(thresholds), counts_(counts), tile_(count_on(path)) {
  std::fill_n(counts, thresholds.size(), 0);
  first_ = keys_of_thresholds(thresholds.first(std::min(ThresholdKeys::kMost, thresholds.size())));
}

void Counter::count(const float* x, uint64_t n) {
  for (uint64_t first = 0; first < thresholds_.size(); first += ThresholdKeys::kMost) {
    const uint64_t size = std::min(ThresholdKeys::kMost, thresholds_.size() - first);
    int32_t found[ThresholdKeys::kMost] = {};
    tile_(x, n, first == 0 ? first_ : keys_of_thresholds(thresholds_.subspan(first, size)), found);
    for (uint64_t j = 0; j < size; ++j) counts_[first + j] += static_cast<uint64_t>(found[j]);
  }
}

}  // namespace penstock::kernels
