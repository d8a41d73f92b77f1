// Tests of stochastic rounding: cuts, code paths and scales. The tests of the compressors check the
// sent value of each element, against their definitions.
#include <gtest/gtest.h>
#include <kernels/sign.hpp>
#include <kernels/stochastic.hpp>

#include <cfloat>
#include <cmath>
#include <random>
#include <vector>

namespace penstock::kernels::stochastic_test {
namespace {

using Floats = std::vector<float>;
const std::vector<uint64_t> kSizes = {0, 1, 2, 31, 63, 64, 65, 1000, 1024, 1025, 5003};
constexpr RandomKey kKey{12345};
// Words of a 64-bit counter's lower half: the last range crosses into the next block.
const std::vector<uint64_t> kFirsts = {0, 64, (uint64_t{1} << 32) - 128};

Floats draw(uint64_t n) {
  std::mt19937 generator(7);
  Floats values(n);
  for (float& value : values) {
    value = (static_cast<float>(generator() % 4001) - 2000) * 1e-3f;
    if (generator() % 9 == 0) value = generator() % 2 == 0 ? 0.0f : -0.0f;
  }
  return values;
}

// The outputs of one call.
struct Result {
  Floats values;
  std::vector<uint8_t> codes;
  std::vector<uint64_t> negative, nonzero;
  bool operator==(const Result&) const = default;
};

enum class Kind { kLevels, kSigns, kPowers };

void round(Kind kind, Result& result, uint64_t at, uint64_t count, uint64_t first, bool take_out,
           CodePath path) {
  float* const x = result.values.data() + at;
  if (kind == Kind::kLevels)
    round_to_levels(x, count, {0.25f, 7}, kKey, first + at, take_out, result.codes.data() + at,
                    path);
  if (kind == Kind::kPowers)
    round_to_powers(x, count, 100, kKey, first + at, take_out, result.codes.data() + at, path);
  if (kind == Kind::kSigns)
    round_to_signs(x, count, 1.5f, kKey, first + at, take_out, result.negative.data() + at / 64,
                   result.nonzero.data() + at / 64, path);
}

Result blank(uint64_t n) {
  return {draw(n), std::vector<uint8_t>(n), std::vector<uint64_t>(sign_words(n)),
          std::vector<uint64_t>(sign_words(n))};
}

TEST(Stochastic, AnyCutOnAnyCodePathGivesTheSameBits) {
  for (const Kind kind : {Kind::kLevels, Kind::kSigns, Kind::kPowers})
    for (const bool take_out : {false, true})
      for (const uint64_t first : kFirsts)
        for (const uint64_t n : kSizes) {
          Result expected = blank(n);
          round(kind, expected, 0, n, first, take_out, CodePath::kPortable);
          if (!take_out) {
            EXPECT_EQ(expected.values, draw(n));
          }
          for (const CodePath path : kAllCodePaths) {
            if (!code_path_supported(path)) continue;
            Result whole = blank(n), cut = blank(n);
            round(kind, whole, 0, n, first, take_out, path);
            EXPECT_TRUE(whole == expected) << n << " on " << code_path_name(path);
            for (uint64_t at = 0; at < n; at += 192)
              round(kind, cut, at, std::min<uint64_t>(192, n - at), first, take_out, path);
            EXPECT_TRUE(cut == expected) << n << " in pieces on " << code_path_name(path);
          }
        }
}

TEST(Stochastic, WhatIsTakenOutIsWhatIsAdded) {
  for (const uint64_t n : kSizes)
    for (const CodePath path : kAllCodePaths) {
      if (!code_path_supported(path)) continue;
      const Floats before = draw(n);
      Result levels = blank(n), powers = blank(n);
      round(Kind::kLevels, levels, 0, n, 0, true, path);
      round(Kind::kPowers, powers, 0, n, 0, true, path);
      for (const bool clear : {true, false}) {
        Floats of_levels(n, 0.5f), of_powers(n, 0.5f);
        add_levels(levels.codes.data(), n, 0.25f, clear, of_levels.data(), path);
        add_powers(powers.codes.data(), n, 100, clear, of_powers.data(), path);
        for (uint64_t i = 0; i < n; ++i) {
          const float start = clear ? 0.0f : 0.5f;
          // Steps of a quarter, and powers from 2^-26 on: differences of these floats are exact.
          ASSERT_EQ(of_levels[i] - start, before[i] - levels.values[i]) << i;
          ASSERT_NEAR(of_powers[i] - start, before[i] - powers.values[i], 2e-7) << i;
        }
      }
    }
}

TEST(Stochastic, ZerosStayZeros) {
  Floats zeros(100);
  std::vector<uint8_t> codes(100, 1);
  round_to_levels(zeros.data(), 100, {0.25f, 7}, kKey, 0, false, codes.data(), widest_code_path());
  EXPECT_EQ(codes, std::vector<uint8_t>(100));
  codes.assign(100, 1);
  round_to_levels(zeros.data(), 100, {0.0f, 7}, kKey, 0, false, codes.data(), widest_code_path());
  EXPECT_EQ(codes, std::vector<uint8_t>(100));
  codes.assign(100, 1);
  round_to_powers(zeros.data(), 100, 0, kKey, 0, false, codes.data(), widest_code_path());
  EXPECT_EQ(codes, std::vector<uint8_t>(100));
}

TEST(Stochastic, MomentsAreThoseOfAPlainLoopAndEqualOnEveryCodePath) {
  for (const uint64_t n : kSizes) {
    const Floats values = draw(n);
    double sum = 0, squares = 0;
    float largest = 0;
    for (const float value : values) {
      sum += double{value};
      squares += double{value} * value;
      largest = std::max(largest, std::fabs(value));
    }
    const Moments expected = moments(values.data(), n, CodePath::kPortable);
    EXPECT_NEAR(expected.sum, sum, 1e-10);  // 5003 additions of 2^-53 of at most 10^4
    EXPECT_NEAR(expected.sum_of_squares, squares, 1e-10);
    for (const CodePath path : kAllCodePaths) {
      if (!code_path_supported(path)) continue;
      const Moments found = moments(values.data(), n, path);
      EXPECT_EQ(found.sum, expected.sum) << code_path_name(path);
      EXPECT_EQ(found.sum_of_squares, expected.sum_of_squares) << code_path_name(path);
      EXPECT_EQ(found.largest, largest) << code_path_name(path);
      EXPECT_EQ(largest_magnitude(values.data(), n, path), largest) << code_path_name(path);
    }
  }
}

TEST(Stochastic, AGridReachesAsFarAsAsked) {
  EXPECT_EQ(grid_step(0, 7), 0.0f);
  for (const uint32_t levels : {1u, 7u, 127u}) {
    for (const double reach : {double{FLT_TRUE_MIN}, 1e-44, 1e-40, 1e-20, 0.1, 1.0, 12.7, 1e30}) {
      const float step = grid_step(reach, levels);
      EXPECT_GE(double{step} * levels, reach);
      EXPECT_TRUE(step == FLT_TRUE_MIN || double{std::nextafter(step, 0.0f)} * levels < reach);
    }
    for (const double reach : {double{FLT_MAX}, 1e39, 1e300}) {
      const float step = grid_step(reach, levels);
      EXPECT_TRUE(std::isfinite(static_cast<float>(levels) * step));
      EXPECT_GE(static_cast<float>(levels) * step, 0.999999f * FLT_MAX);
    }
  }
}

TEST(Stochastic, ABaseLeavesRoomForTheLargest) {
  EXPECT_EQ(power_base(0), 0u);
  EXPECT_EQ(power_base(0x1p-10f), 0u);
  EXPECT_EQ(power_base(1.0f), 1u);  // up to 2^1, which has exponent 128: codes to 127
  EXPECT_EQ(power_base(0x1p100f), 101u);
  EXPECT_EQ(power_base(FLT_MAX), 127u);  // never beyond 2^127
}

}  // namespace
}  // namespace penstock::kernels::stochastic_test
