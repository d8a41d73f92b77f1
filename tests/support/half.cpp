// Conversions by arithmetic on values and not on bits. See half.hpp.
#include <algorithm>
#include <cmath>
#include <limits>
#include <support/half.hpp>

namespace penstock::test {
namespace {

// A binary format with a sign, exponents from `lowest` to `highest` and `digits` significant bits.
struct Format {
  int digits;
  int lowest;
  int highest;
  int exponent_bits;
};
constexpr Format kFloat16{11, -14, 15, 5};
constexpr Format kBfloat16{8, -126, 127, 8};

uint16_t encode(float value, const Format& format) {
  const int fraction_bits = format.digits - 1;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const uint16_t infinity =
      static_cast<uint16_t>(((1 << format.exponent_bits) - 1) << fraction_bits);
  if (std::isnan(value)) return sign | infinity | static_cast<uint16_t>(1 << (fraction_bits - 1));
  const double magnitude = std::fabs(static_cast<double>(value));
  if (std::isinf(value)) return sign | infinity;
  int exponent = magnitude == 0 ? format.lowest : std::ilogb(magnitude);
  if (exponent < format.lowest) exponent = format.lowest;
  // In units in the last place. nearbyint rounds ties to even in the default mode.
  double units = std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent));
  if (units == std::ldexp(1.0, format.digits)) {
    units /= 2;
    ++exponent;
  }
  if (exponent > format.highest) return sign | infinity;
  const auto whole = static_cast<uint32_t>(units);
  const bool normal = whole >= (1u << fraction_bits);
  const uint32_t biased = normal ? static_cast<uint32_t>(exponent - format.lowest + 1) : 0;
  return static_cast<uint16_t>(sign | (biased << fraction_bits) |
                               (whole & ((1u << fraction_bits) - 1)));
}

float decode(uint16_t bits, const Format& format) {
  const int fraction_bits = format.digits - 1;
  const int biased = (bits >> fraction_bits) & ((1 << format.exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (biased == (1 << format.exponent_bits) - 1) {
    if (fraction != 0) return std::numeric_limits<float>::quiet_NaN();
    return static_cast<float>(sign * std::numeric_limits<double>::infinity());
  }
  const int whole = biased == 0 ? fraction : fraction + (1 << fraction_bits);
  const int exponent = (biased == 0 ? 1 : biased) + format.lowest - 1 - fraction_bits;
  return static_cast<float>(sign * std::ldexp(static_cast<double>(whole), exponent));
}

}  // namespace

uint16_t to_float16(float value) {
  return encode(value, kFloat16);
}
float from_float16(uint16_t bits) {
  return decode(bits, kFloat16);
}
uint16_t to_bfloat16(float value) {
  return encode(value, kBfloat16);
}
float from_bfloat16(uint16_t bits) {
  return decode(bits, kBfloat16);
}

float SummedType::sent(float value, uint32_t ranks) const {
  const float share = largest / static_cast<float>(ranks);
  float most = rounded(share);
  // The steps are shorter than half a unit in the last place of each type, so no number is skipped.
  for (float below = share; most > share; most = rounded(below)) below -= below * 0x1p-13f;
  return rounded(std::clamp(value, -most, most));
}

const std::vector<SummedType>& summed_types() {
  static const std::vector<SummedType> types{
      {"fp32", [](float value) { return value; }, std::numeric_limits<float>::infinity()},
      {"fp16", [](float value) { return from_float16(to_float16(value)); }, 65504.0f},
      {"bf16", [](float value) { return from_bfloat16(to_bfloat16(value)); }, 0x1.fep127f}};
  return types;
}

}  // namespace penstock::test
