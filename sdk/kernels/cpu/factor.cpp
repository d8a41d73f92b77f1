// Draws and renews low-rank factors.
#include <kernels/factor.hpp>

namespace penstock::kernels {
namespace {

bool column_is_zero(const float* factor, uint64_t rows, uint64_t rank, uint64_t column) {
  for (uint64_t i = 0; i < rows; ++i)
    if (factor[i * rank + column] != 0.0f) return false;
  return true;
}

}  // namespace

bool all_zero(const float* values, uint64_t count) noexcept {
  for (uint64_t i = 0; i < count; ++i)
    if (values[i] != 0.0f) return false;
  return true;
}

void draw_factor(float* factor, uint64_t rows, uint64_t rank, const FactorSource& source,
                 float* scratch, CodePath path) noexcept {
  random_normal(source.seed, source.gradient, source.stream, 0, rows * rank, factor);
  low_rank::orthogonalise(factor, rows, rank, scratch, path);
}

void renew_factor(float* factor, uint64_t rows, uint64_t rank, const FactorSource& source,
                  float* scratch, CodePath path) noexcept {
  if (low_rank::orthogonalise(factor, rows, rank, scratch, path) == 0) return;
  for (uint64_t c = 0; c < rank; ++c) {
    if (!column_is_zero(factor, rows, rank, c)) continue;
    for (uint64_t i = 0; i < rows; ++i)
      random_normal(source.seed, source.gradient, source.stream, i * rank + c, 1,
                    factor + i * rank + c);
  }
  low_rank::orthogonalise(factor, rows, rank, scratch, path);
}

}  // namespace penstock::kernels
