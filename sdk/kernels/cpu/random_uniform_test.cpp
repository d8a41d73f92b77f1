// Tests random words against the formulas of the header, and their statistics as random numbers.
#include <gtest/gtest.h>
#include <kernels/random_uniform.hpp>

#include <bit>
#include <cmath>
#include <set>
#include <vector>

namespace penstock::kernels::random_uniform_test {
namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;

std::vector<uint32_t> words(RandomKey key, uint64_t first, uint64_t count,
                            CodePath path = widest_code_path()) {
  std::vector<uint32_t> out(count);
  random_words(key, first, count, out.data(), path);
  return out;
}

// The formulas of the header, in 64-bit arithmetic with explicit remainders.
uint32_t by_definition(uint64_t seed, uint64_t gradient, uint64_t stream, uint64_t rank,
                       uint64_t element) {
  constexpr uint64_t kModulus = uint64_t{1} << 32;
  const uint64_t base = splitmix64(seed ^ splitmix64(gradient * kGolden + stream));
  const uint64_t key = splitmix64(base + rank * kGolden);
  const uint64_t k = splitmix64(key + (element / kModulus) * kGolden);
  uint64_t x = (element % kModulus + k % kModulus) % kModulus;
  x = (x ^ (x / 65536)) * 0x7FEB352Du % kModulus;
  x = x ^ (k / kModulus);
  x = (x ^ (x / 32768)) * 0x846CA68Bu % kModulus;
  return static_cast<uint32_t>(x ^ (x / 65536));
}

TEST(RandomUniform, WordsFollowTheDefinitionOnEveryCodePath) {
  const uint64_t firsts[] = {0, 1, 77, (uint64_t{1} << 32) - 40, (uint64_t{5} << 32) + 3};
  for (const CodePath path : kAllCodePaths) {
    if (!code_path_supported(path)) continue;
    for (const uint64_t first : firsts)
      for (const uint64_t count : {0u, 1u, 2u, 31u, 64u, 1000u}) {
        const std::vector<uint32_t> drawn = words(random_key({7, 3, 20, 2}), first, count, path);
        for (uint64_t k = 0; k < count; ++k)
          ASSERT_EQ(drawn[k], by_definition(7, 3, 20, 2, first + k)) << code_path_name(path);
      }
  }
}

TEST(RandomUniform, AnyCutGivesTheSameWords) {
  const RandomKey key = random_key({1, 2, kStreamRounding});
  const uint64_t first = (uint64_t{1} << 32) - 500;
  const std::vector<uint32_t> whole = words(key, first, 1000);
  for (uint64_t at = 0, piece = 1; at < whole.size(); at += piece, piece = piece % 37 + 1) {
    piece = std::min<uint64_t>(piece, whole.size() - at);
    const std::vector<uint32_t> part = words(key, first + at, piece);
    for (uint64_t k = 0; k < piece; ++k) ASSERT_EQ(part[k], whole[at + k]) << at + k;
  }
}

TEST(RandomUniform, EveryArgumentMatters) {
  std::set<uint32_t> first_words;
  for (const RandomSource& source :
       {RandomSource{1, 0, 4, 0}, RandomSource{2, 0, 4, 0}, RandomSource{1, 1, 4, 0},
        RandomSource{1, 0, 5, 0}, RandomSource{1, 0, 4, 1}})
    first_words.insert(words(random_key(source), 0, 1)[0]);
  EXPECT_EQ(first_words.size(), 5u);
}

TEST(RandomUniform, NumbersLieInTheOpenIntervalAndAreTheUpperBits) {
  EXPECT_EQ(unit_interval(0), 0x1p-24f);
  EXPECT_EQ(unit_interval(UINT32_MAX), 1 - 0x1p-24f);
  const RandomKey key = random_key({1, 2, 3});
  const std::vector<uint32_t> drawn = words(key, 9, 100);
  std::vector<float> numbers(100);
  random_uniform(key, 9, 100, numbers.data(), widest_code_path());
  for (int k = 0; k < 100; ++k)
    EXPECT_EQ(numbers[k], (static_cast<float>(drawn[k] / 512) + 0.5f) / 8388608.0f);
}

// Chi-square of `counts` against equal shares, as a number of standard deviations.
double deviation(const std::vector<uint64_t>& counts, double total) {
  const double expected = total / static_cast<double>(counts.size());
  double sum = 0;
  for (const uint64_t count : counts)
    sum += std::pow(static_cast<double>(count) - expected, 2) / expected;
  const double freedom = static_cast<double>(counts.size()) - 1;
  return (sum - freedom) / std::sqrt(2 * freedom);
}

// 5 standard deviations: one in 3 million for a fair generator; the seeds are fixed.
TEST(RandomUniform, BytesAndPairsOfNeighboursAreEquallyFrequent) {
  constexpr uint64_t kCount = 1 << 20;
  for (const uint64_t seed : {1u, 2u}) {
    const std::vector<uint32_t> drawn = words(random_key({seed, 0, 4}), 0, kCount);
    for (int shift = 0; shift < 32; shift += 8) {
      std::vector<uint64_t> bytes(256), pairs(4096);
      for (uint64_t k = 0; k < kCount; ++k) ++bytes[drawn[k] >> shift & 255];
      for (uint64_t k = 0; k + 1 < kCount; ++k)
        ++pairs[(drawn[k] >> shift & 63) << 6 | (drawn[k + 1] >> shift & 63)];
      EXPECT_LT(std::fabs(deviation(bytes, kCount)), 5) << "bits from " << shift;
      EXPECT_LT(std::fabs(deviation(pairs, kCount - 1)), 5) << "bits from " << shift;
    }
  }
}

// Expects that a bit of one stream equals the bit of the other stream in half of the words.
void expect_unrelated(const std::vector<uint32_t>& one, const std::vector<uint32_t>& other) {
  int64_t differ[32] = {};
  for (uint64_t k = 0; k < one.size(); ++k)
    for (int bit = 0; bit < 32; ++bit) differ[bit] += (one[k] ^ other[k]) >> bit & 1;
  for (int bit = 0; bit < 32; ++bit) {
    const double half = static_cast<double>(one.size()) / 2;
    EXPECT_LT(std::fabs(static_cast<double>(differ[bit]) - half), 5 * std::sqrt(half / 2)) << bit;
  }
}

TEST(RandomUniform, NeighbouringStepsRanksAndElementsAreUnrelated) {
  constexpr uint64_t kCount = 1 << 18;
  const RandomSource here{1, 0, stream_of_step(kStreamRounding, 0), 0};
  const std::vector<uint32_t> drawn = words(random_key(here), 0, kCount);
  RandomSource next_step = here, next_rank = here;
  next_step.stream = stream_of_step(kStreamRounding, 1);
  next_rank.rank = 1;
  expect_unrelated(drawn, words(random_key(next_step), 0, kCount));
  expect_unrelated(drawn, words(random_key(next_rank), 0, kCount));
  for (const uint64_t lag : {1u, 2u, 8u, 16u, 4096u, 65536u})
    expect_unrelated(drawn, words(random_key(here), lag, kCount));
}

}  // namespace
}  // namespace penstock::kernels::random_uniform_test
