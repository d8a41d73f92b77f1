// Statistics of the magnitudes of an array, gathered in one pass over memory. Threshold methods
// (Gaussian-k, RedSync, SIDCo) estimate their threshold from them. The same pass can count the
// entries that reach each of several candidate thresholds.
//
//   uint64_t counts[8];
//   const Statistics facts = statistics(x, n, {.thresholds = candidates, .counts = counts});
//   const double mean = facts.sum_of_magnitudes / n;
//
// Sums have one fixed order, so every code path gives equal bits: element i goes to lane i mod 16,
// in double, and lanes are joined by halving.
#pragma once

#include <kernels/code_path.hpp>
#include <kernels/fold.hpp>

#include <cstdint>
#include <span>

namespace penstock::kernels {

struct Statistics {
  double sum_of_magnitudes = 0;
  double sum_of_squares = 0;
  double sum_of_logs = 0;  // of ln |x| over entries that are not zero; only if requested
  uint64_t nonzero = 0;    // entries that are not zero
  float largest = 0;       // |x|
};

struct StatisticsRequest {
  // counts[j] = entries with |x| >= thresholds[j], as count_above of select.hpp gives them.
  std::span<const float> thresholds = {};
  uint64_t* counts = nullptr;
  // Each entry's logarithm is right to about 1e-7.
  bool logs = false;
  // Its work must be x: the sweep first compensates x, with the bits of compensate.
  const Fold* fold = nullptr;
};

// x[n] is finite. A NaN reaches no threshold, and makes the sums NaN. Does not allocate. [any]
Statistics statistics(const float* x, uint64_t n, const StatisticsRequest& request,
                      CodePath path) noexcept;

}  // namespace penstock::kernels
