// 16-bit floats from their definition, one value at a time: the oracle of fast conversions.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock::test {

// To nearest, ties to even; overflow gives infinity, NaN stays NaN (quiet).
uint16_t to_float16(float value);
float from_float16(uint16_t bits);
uint16_t to_bfloat16(float value);
float from_bfloat16(uint16_t bits);

// A type of values that ranks sum on the way, and what a value becomes in it.
struct SummedType {
  const char* name;
  float (*rounded)(float);
  float largest;  // infinity: any value goes as it is

  // What one of `ranks` sends of a value: rounded, and no more than the type's largest number that
  // is not above a share of its largest of all, so that the sum of all ranks stays finite.
  float sent(float value, uint32_t ranks) const;
};
// fp32, fp16, bf16.
const std::vector<SummedType>& summed_types();

}  // namespace penstock::test
