// Stochastic casts: a float32 number becomes one of its two neighbours in a 16-bit type, at random,
// so that the expectation is the number itself. The random word is a function of (key, element), so
// neither a cut of a gradient nor the code path changes a bit. convert.hpp rounds to nearest.
#pragma once

#include <kernels/narrow_values.hpp>
#include <kernels/random_uniform.hpp>

#include <cstdint>

namespace penstock::kernels {

// target[i] = values[i] in `type`, as bits. `type` is kFloat16 or kBfloat16. A number x = below + f
// * unit, with its neighbour `below` towards zero and 0 <= f < 1, becomes the neighbour away from
// zero if f + draw >= 1, else `below`. The draw is made of the upper bits of the random word of
// element first + i:
//   bfloat16, and normal float16 (from 2^-14 on)   16 and 13 bits, so the expectation is exactly x
//   subnormal float16                              31 bits, and f is cut to 31 bits too
// Numbers of the type, zeros with their signs, infinities and NaN stay what they are. Beyond the
// largest number of the type, rounding is to nearest (infinity from the middle to the next power
// on), because an infinity has no chance that makes the expectation right. The ranges must not
// overlap. [any]
void cast_by_chance(ValueType type, const float* values, uint64_t count, RandomKey key,
                    uint64_t first, uint16_t* target, CodePath path) noexcept;

}  // namespace penstock::kernels
