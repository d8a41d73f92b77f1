// 16-bit floats from their definition, one value at a time: the oracle of fast conversions.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace penstock::test {

// To nearest, ties to even; overflow gives infinity, NaN stays NaN (quiet).
uint16_t to_float16(float value);
float from_float16(uint16_t bits);
uint16_t to_bfloat16(float value);
float from_bfloat16(uint16_t bits);

// The types of values that ranks sum on the way, and what a value becomes in them.
using Rounding = float (*)(float);
float no_rounding(float value);
const std::vector<std::pair<const char*, Rounding>>& summed_types();

}  // namespace penstock::test
