// The sample of a selection: how often it misleads, so that every entry must be compared.
#include <kernels/cuda/select_plan.hpp>

#include <gtest/gtest.h>

namespace penstock::simulated::samples_test {

namespace cuda = kernels::cuda;

// The probability that fewer than `most` entries of a sample reach a bound, if `mean` entries reach
// it on average.
double fewer_than(uint64_t most, double mean) {
  double sum = 0;
  for (uint64_t i = 0; i < most; ++i)
    sum += std::exp(static_cast<double>(i) * std::log(mean) - mean -
                    std::lgamma(static_cast<double>(i) + 1));
  return sum;
}

TEST(Sample, LetsMoreEntriesThroughThanThereIsRoomForOnceInHalfAMillionSelections) {
  for (const uint64_t n : {uint64_t{100'000}, uint64_t{2'359'296}, uint64_t{100'000'000}})
    for (const double density : {0.001, 0.01, 0.1}) {
      const auto k = static_cast<uint64_t>(static_cast<double>(n) * density);
      const uint64_t room = cuda::candidates_for(n, k);
      if (room == n) continue;
      const double mean = static_cast<double>(room) / static_cast<double>(n) * cuda::kSamples;
      EXPECT_LT(fewer_than(cuda::sample_rank(n, k), mean), 2e-6) << n << " at " << density;
    }
}

TEST(Sample, LetsTheKLargestThroughInAllButOneOfTenThousandSelections) {
  for (const double density : {0.0001, 0.001, 0.01, 0.1}) {
    const uint64_t n = 100'000'000, k = static_cast<uint64_t>(static_cast<double>(n) * density);
    const double mean = density * cuda::kSamples;
    EXPECT_GT(fewer_than(cuda::sample_rank(n, k), mean), 0.9999) << density;
  }
}

}  // namespace penstock::simulated::samples_test
