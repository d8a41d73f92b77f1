// 16-bit floats from their definition, one value at a time: the oracle of fast conversions.
#pragma once

#include <cstdint>

namespace penstock::test {

// To nearest, ties to even; overflow gives infinity, NaN stays NaN (quiet).
uint16_t to_float16(float value);
float from_float16(uint16_t bits);
uint16_t to_bfloat16(float value);
float from_bfloat16(uint16_t bits);

}  // namespace penstock::test
