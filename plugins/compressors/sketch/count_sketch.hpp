// The count sketch: a table of rows x columns into which every element is added once per row, at a
// random column with a random sign, and from which elements are estimated.
// Source: Charikar, Chen, Farach-Colton, "Finding Frequent Items in Data Streams", ICALP 2002.
#pragma once

#include <kernels/random_uniform.hpp>

#include <cstdint>

namespace penstock::sketch {

inline constexpr uint64_t kMostRows = 9;

struct Shape {
  uint64_t rows;     // odd, at most kMostRows
  uint64_t columns;  // at most 2^31
  uint64_t entries() const { return rows * columns; }
};

// The hash functions of a sketch; row r draws random words as rank r. In row r, with w the word of
// the element,
//   column = ((w >> 1) * columns) >> 31     sign = -1 where the lowest bit of w is set, else 1
struct Hashes {
  kernels::RandomSource source;
  uint64_t first;  // index in the gradient of element 0 of x
};

// table[entries] = sketch of x[numel]; elements are added in ascending order. [any]
void sketch(const float* x, uint64_t numel, const Shape& shape, const Hashes& hashes, float* table,
            kernels::CodePath path) noexcept;

// estimates[numel] = the median over rows of sign * table[row][column]. [any]
void estimate(const float* table, uint64_t numel, const Shape& shape, const Hashes& hashes,
              float* estimates, kernels::CodePath path) noexcept;

}  // namespace penstock::sketch
