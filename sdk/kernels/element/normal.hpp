// One normal number from 64 random bits (random_normal.hpp). The elementary functions are power
// series in plain double arithmetic, accurate to a few units of 1e-16; after rounding to float they
// agree with exact functions, except for the rare value that lies at the middle between two floats.
// Internal to the kernels, for both the CPU and CUDA.
#pragma once

#include <kernels/random_normal.hpp>

#include <bit>
#include <cstdint>
#include <numbers>

namespace penstock::kernels {

// ln(u) for a positive normal u: u = 2^e m with m in [1/sqrt 2, sqrt 2), and
// ln m = 2 artanh(s) = 2 (s + s^3/3 + s^5/5 + ...), s = (m - 1) / (m + 1), |s| < 0.172.
constexpr double natural_log(double u) {
  const uint64_t bits = std::bit_cast<uint64_t>(u);
  constexpr uint64_t kFraction = (uint64_t{1} << 52) - 1;
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & kFraction) | (uint64_t{1023} << 52));
  if (m >= std::numbers::sqrt2) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double square = s * s;
  double series = 0;
  for (int k = 23; k >= 3; k -= 2) series = (series + 1.0 / k) * square;
  return exponent * std::numbers::ln2 + 2.0 * (s + s * series);
}

// cos(x) and sin(x) for 0 <= x <= pi / 4, by Taylor series.
constexpr double small_cosine(double x) {
  const double square = x * x;
  double series = 1;
  for (int k = 18; k >= 2; k -= 2) series = 1.0 - series * square / (k * (k - 1));
  return series;
}
constexpr double small_sine(double x) {
  const double square = x * x;
  double series = 1;
  for (int k = 19; k >= 3; k -= 2) series = 1.0 - series * square / (k * (k - 1));
  return x * series;
}

// cos(2 pi (turn + 0.5) / 2^32). The quadrant and the angle in it are computed from the integer, so
// no precision is lost near the zeros of the cosine.
constexpr double cosine_of_turn(uint32_t turn) {
  constexpr double kQuarter = 1073741824.0;  // 2^30 counts to a quarter turn
  const uint32_t quadrant = turn >> 30;
  double count = static_cast<double>(turn & 0x3FFFFFFFu) + 0.5;
  bool sine = (quadrant & 1) != 0;  // cos(a + pi/2) = -sin a
  if (count > kQuarter / 2) {       // cos a = sin(pi/2 - a), and the reverse
    count = kQuarter - count;
    sine = !sine;
  }
  const double angle = count * (std::numbers::pi / 2 / kQuarter);
  const double magnitude = sine ? small_sine(angle) : small_cosine(angle);
  return quadrant == 1 || quadrant == 2 ? -magnitude : magnitude;
}

// The bits from which element `element` of a stream is made; `base` is the normal_base of the
// stream.
constexpr uint64_t normal_base(uint64_t seed, uint64_t gradient, uint64_t stream) {
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;
  return splitmix64(seed ^ splitmix64(gradient * kGolden + stream));
}
constexpr uint64_t normal_bits(uint64_t base, uint64_t element) {
  return splitmix64(base + element * 0x9E3779B97F4A7C15u);
}

// The square of the radius that the upper half of the bits stands for. The caller takes the root,
// because a square root is not constexpr.
constexpr double squared_radius(uint64_t bits) {
  const double u1 = (static_cast<double>(bits >> 32) + 0.5) / 4294967296.0;
  return -2.0 * natural_log(u1);
}

}  // namespace penstock::kernels
