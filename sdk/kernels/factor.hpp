// Factors that low-rank methods carry from step to step: drawn at first use, kept orthonormal, and
// renewed where a column has died.
//
// A zero column would stay zero for ever: its product with the gradient is zero, so the column that
// comes back is zero again. A column becomes zero if the gradient had too low a rank; it is drawn
// again here.
#pragma once

#include <kernels/low_rank.hpp>
#include <kernels/random_normal.hpp>

#include <cstdint>

namespace penstock::kernels {

// The source of a factor's random numbers; equal on all ranks.
struct FactorSource {
  uint64_t seed;
  uint64_t gradient;
  uint64_t stream;
};

// Whether all `count` numbers are zero. [any]
bool all_zero(const float* values, uint64_t count) noexcept;

// factor[rows x rank] <- orthonormal columns from normal numbers: element i of the stream is
// element i of the factor before it is orthogonalised. `scratch` as for orthogonalise. [any]
void draw_factor(float* factor, uint64_t rows, uint64_t rank, const FactorSource& source,
                 float* scratch, CodePath path) noexcept;

// factor <- orthonormal columns whose span contains the old span: orthogonalises the factor, fills
// columns that became zero with normal numbers (element i of the stream for element i of the
// factor), and orthogonalises again. With rank <= rows no column stays zero. [any]
void renew_factor(float* factor, uint64_t rows, uint64_t rank, const FactorSource& source,
                  float* scratch, CodePath path) noexcept;

}  // namespace penstock::kernels
