// Stochastic casts against their definition, with every cut and on every code path; their
// expectation; and the numbers that never change.
#include <gtest/gtest.h>
#include <kernels/convert.hpp>
#include <kernels/stochastic_cast.hpp>
#include <support/stochastic_cast.hpp>

#include <bit>
#include <cfloat>
#include <limits>
#include <random>
#include <vector>

namespace penstock::kernels::stochastic_cast_test {
namespace {

using Floats = std::vector<float>;
using Bits = std::vector<uint16_t>;
constexpr RandomKey kKey{12345};
constexpr ValueType kTypes[] = {ValueType::kFloat16, ValueType::kBfloat16};
// The last range crosses into the next block of random words.
const std::vector<uint64_t> kFirsts = {0, 7, (uint64_t{1} << 32) - 100};

const test::ChanceType& oracle_of(ValueType type) {
  return type == ValueType::kFloat16 ? test::kChanceHalf : test::kChanceBfloat16;
}

// Floats of every exponent, and the numbers at which a formula changes, with both signs.
Floats awkward(uint64_t n) {
  const float edges[] = {0,        FLT_TRUE_MIN, FLT_MIN,     0x1p-50f, 0x1p-25f,   0x1.8p-25f,
                         0x1p-24f, 0x1.ffcp-15f, 0x1p-14f,    65503.9f, 65504,      65504.1f,
                         65519.9f, 65520,        0x1.fep127f, FLT_MAX,  0x1.ffp127f};
  std::mt19937 generator(3);
  Floats values(n);
  for (uint64_t i = 0; i < n; ++i) {
    const auto bits = static_cast<uint32_t>(generator());
    values[i] = std::bit_cast<float>(bits);
    if (!std::isfinite(values[i])) values[i] = edges[i % std::size(edges)];
    if (i % 3 == 0) values[i] = (bits & 1u ? -1.0f : 1.0f) * edges[i / 3 % std::size(edges)];
    if (i % 3 == 1) values[i] = std::ldexp(1 + float(bits >> 9) * 0x1p-23f, -int(bits % 48));
  }
  return values;
}

Bits cast(ValueType type, const Floats& values, uint64_t first, CodePath path,
          RandomKey key = kKey) {
  Bits bits(values.size());
  cast_by_chance(type, values.data(), values.size(), key, first, bits.data(), path);
  return bits;
}

float value_of(ValueType type, uint16_t bits) {
  return oracle_of(type).from_bits(bits);
}

TEST(StochasticCast, EveryElementFollowsTheDefinition) {
  const Floats values = awkward(5003);
  for (const ValueType type : kTypes)
    for (const uint64_t first : kFirsts) {
      const Bits bits = cast(type, values, first, widest_code_path());
      std::vector<uint32_t> words(values.size());
      random_words(kKey, first, words.size(), words.data(), CodePath::kPortable);
      for (uint64_t i = 0; i < values.size(); ++i) {
        const float expected = test::cast_by_chance(oracle_of(type), values[i], words[i]);
        ASSERT_EQ(value_of(type, bits[i]), expected) << values[i];
        ASSERT_EQ(bits[i] >> 15, std::signbit(values[i]) ? 1 : 0) << values[i];
      }
    }
}

TEST(StochasticCast, AnyCutOnAnyCodePathGivesTheSameBits) {
  for (const ValueType type : kTypes)
    for (const uint64_t first : kFirsts)
      for (const uint64_t n : {0u, 1u, 7u, 8u, 17u, 64u, 1001u}) {
        const Floats values = awkward(n);
        const Bits expected = cast(type, values, first, CodePath::kPortable);
        for (const CodePath path : kAllCodePaths) {
          if (!code_path_supported(path)) continue;
          EXPECT_EQ(cast(type, values, first, path), expected) << code_path_name(path);
          Bits pieces;
          for (uint64_t at = 0, size = 1; at < n; at += size, size = size % 37 + 1) {
            const Floats piece(values.begin() + static_cast<int64_t>(at),
                               values.begin() + static_cast<int64_t>(std::min(n, at + size)));
            const Bits of_piece = cast(type, piece, first + at, path);
            pieces.insert(pieces.end(), of_piece.begin(), of_piece.end());
          }
          EXPECT_EQ(pieces, expected) << code_path_name(path);
        }
      }
}

TEST(StochasticCast, EveryNumberOfTheTypeStaysWhatItIs) {
  for (const ValueType type : kTypes) {
    Bits all(1 << 16);
    Floats values(all.size());
    for (uint32_t b = 0; b < all.size(); ++b) {
      all[b] = static_cast<uint16_t>(b);
      values[b] = value_of(type, all[b]);
      if (std::isnan(values[b])) all[b] = oracle_of(type).to_bits(values[b]);  // the quiet NaN
    }
    for (const uint64_t key : {1u, 2u, 3u, 4u})
      EXPECT_EQ(cast(type, values, 0, widest_code_path(), {key}), all);
  }
}

TEST(StochasticCast, NumbersBeyondTheLargestRoundToNearestWithoutChance) {
  const Floats too_large = {65504.1f, 65519.9f, 65520, 65536, 1e9f, FLT_MAX, 0x1.fe8p127f};
  for (const ValueType type : kTypes)
    for (const uint64_t key : {1u, 2u, 3u, 4u}) {
      const Bits bits = cast(type, too_large, 0, widest_code_path(), {key});
      for (uint64_t i = 0; i < bits.size(); ++i)
        if (double{too_large[i]} > oracle_of(type).largest) {
          EXPECT_EQ(bits[i], oracle_of(type).to_bits(too_large[i])) << too_large[i];
        }
    }
}

// 4000 casts of each value between two neighbours, each with a key of its own. One cast has a
// deviation of at most half a unit. 5.5 deviations: one failure in 20 million per value, and the
// keys are fixed.
TEST(StochasticCast, TheExpectationIsTheInput) {
  constexpr int kDraws = 4000;
  const Floats values = {1.0001f, -1.0003f, 3.14159f, -1e-3f,  1234.56f, 1e-5f,
                         -3e-8f,  2e-8f,    1e-9f,    -1e-10f, 6.1e-5f,  65503.0f};
  for (const ValueType type : kTypes) {
    std::vector<double> sums(values.size());
    for (uint64_t draw = 0; draw < kDraws; ++draw) {
      const RandomKey key = random_key({1, 0, stream_of_step(kStreamRounding, draw), 0});
      const Bits bits = cast(type, values, 0, widest_code_path(), key);
      for (uint64_t i = 0; i < bits.size(); ++i) sums[i] += double{value_of(type, bits[i])};
    }
    for (uint64_t i = 0; i < values.size(); ++i) {
      const double unit = test::unit_at(oracle_of(type), std::fabs(double{values[i]}));
      const double rest = std::fabs(double{values[i]}) / unit;
      const double chance = rest - std::floor(rest);
      const double deviation = unit * std::sqrt(chance * (1 - chance) / kDraws);
      EXPECT_NEAR(sums[i] / kDraws, double{values[i]}, 5.5 * deviation) << values[i];
    }
  }
}

}  // namespace
}  // namespace penstock::kernels::stochastic_cast_test
