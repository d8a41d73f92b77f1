// Terms of reduce.cuh that several files sum. Internal to the CUDA kernels.
#pragma once

#include <kernels/cuda/tuning.hpp>
#include <kernels/element/logarithm.hpp>
#include <kernels/element/rounding.hpp>
#include <kernels/exceedances.hpp>
#include <kernels/statistics.hpp>

#include <bit>

namespace penstock::kernels::cuda {

// Empty defaults for most terms.
struct PlainTerm {
  __device__ void prepare() {}
  template <typename Sum>
  __device__ void close(Sum&) const {}
};

// The exceedances over *threshold, or over `limit` if threshold is null.
struct Exceeding {
  using Sum = Exceedances;
  const float* threshold;
  float limit;
  __device__ void prepare() {
    if (threshold != nullptr) limit = *threshold;
  }
  __device__ void close(Exceedances&) const {}
  __device__ void add(Exceedances& sum, float x) const {
    const float excess = magnitude(x) - limit;
    if (!(excess > 0.0f)) return;
    sum.sum += double{excess};
    sum.squares += double{excess} * double{excess};
    ++sum.count;
  }
  __device__ void join(Exceedances& sum, const Exceedances& other) const {
    sum.sum += other.sum;
    sum.squares += other.squares;
    sum.count += other.count;
  }
};

// A chain has at most kSumTile / kSumThreads elements, so a product of mantissas in [1, 2) fits a
// double, and one logarithm per chain is enough.
struct StatisticsOf : PlainTerm {
  struct Sum : Statistics {
    double product = 1;
    int64_t exponents = 0;
  };
  static_assert(kSumTile / kSumThreads <= 512);
  bool logs;

  __device__ void add(Sum& sum, float x) const {
    const uint32_t key = std::bit_cast<uint32_t>(x) & 0x7fffffffu;
    const float size = std::bit_cast<float>(key);
    sum.sum_of_magnitudes += double{size};
    sum.sum_of_squares += double{x} * double{x};
    if (size > sum.largest) sum.largest = size;  // not for a NaN
    if (key == 0) return;
    ++sum.nonzero;
    if (!logs) return;
    // Every float but zero is a normal double.
    const uint64_t bits = std::bit_cast<uint64_t>(double{size});
    sum.exponents += static_cast<int64_t>(bits >> 52) - 1023;
    sum.product *= std::bit_cast<double>((bits & 0x000fffffffffffffu) | 0x3ff0000000000000u);
  }
  __device__ void close(Sum& sum) const {
    if (!logs) return;
    const uint64_t bits = std::bit_cast<uint64_t>(sum.product);
    sum.exponents += static_cast<int64_t>(bits >> 52) - 1023;
    const double mantissa =
        std::bit_cast<double>((bits & 0x000fffffffffffffu) | 0x3ff0000000000000u);
    sum.sum_of_logs =
        log_of_mantissa(mantissa) + kNaturalLogOfTwo * static_cast<double>(sum.exponents);
  }
  __device__ void join(Sum& sum, const Sum& other) const {
    sum.sum_of_magnitudes += other.sum_of_magnitudes;
    sum.sum_of_squares += other.sum_of_squares;
    sum.sum_of_logs += other.sum_of_logs;
    sum.nonzero += other.nonzero;
    if (other.largest > sum.largest) sum.largest = other.largest;
  }
};

}  // namespace penstock::kernels::cuda
