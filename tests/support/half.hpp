// 16-bit floats from their definition, one value at a time: the oracle of fast conversions.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock::test {

// Rounds to nearest, ties to even. Overflow gives infinity, and NaN stays NaN (quiet).
uint16_t to_float16(float value);
float from_float16(uint16_t bits);
uint16_t to_bfloat16(float value);
float from_bfloat16(uint16_t bits);

// A type of values in a sum over ranks, and the value that a rank sends in it.
struct SummedType {
  const char* name;
  float (*rounded)(float);
  float largest;  // infinity: values are never limited

  // The value that each rank of `ranks` sends: rounded and limited. The limit is the type's largest
  // number that is at most the type's maximum divided by `ranks`. So the sum of all ranks stays
  // finite.
  float sent(float value, uint32_t ranks) const;
};
// fp32, fp16 and bf16.
const std::vector<SummedType>& summed_types();

}  // namespace penstock::test
