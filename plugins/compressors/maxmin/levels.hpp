// Equally spaced levels: the range of a block, rounding to levels, and the reverse. All code paths
// give equal bits.
#pragma once

#include <kernels/code_path.hpp>
#include <kernels/range_levels.hpp>

#include <cstdint>

namespace penstock::maxmin {

using Range = kernels::ValueRange;
using Levels = kernels::RangeLevels;

// The least and the greatest of x[count], count > 0, all finite. [any]
Range range_of(const float* x, uint64_t count, kernels::CodePath path) noexcept;

// codes[i] = the level below x[i], or the level above it if (x[i] - lower level) / step is greater
// than draws[i]; at most n_steps. [any]
void round_to_levels(const float* x, uint64_t count, const Levels& levels, uint32_t n_steps,
                     const float* draws, uint8_t* codes, kernels::CodePath path) noexcept;

// out[i] += level of codes[i]; x[i] -= level of codes[i]. [any]
void add_levels(const uint8_t* codes, uint64_t count, const Levels& levels, float* out,
                kernels::CodePath path) noexcept;
void subtract_levels(const uint8_t* codes, uint64_t count, const Levels& levels, float* x,
                     kernels::CodePath path) noexcept;

}  // namespace penstock::maxmin
