// Inputs for tests, from fixed seeds, with equal values on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::test {

// A small random generator (SplitMix64), so that values do not depend on the standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t bits();
  double uniform();                // in (0, 1)
  uint64_t below(uint64_t bound);  // in [0, bound)
  double gauss();

 private:
  uint64_t state_;
};

// n values like a gradient's: Gauss times exp of Gauss, mean 0.
std::vector<float> heavy_tailed(uint64_t n, uint64_t seed);
// All 0.
std::vector<float> zeros(uint64_t n, uint64_t seed);
// Zeros around one entry of 1e4 or -1e4: float16 can hold it, and twice its value.
std::vector<float> small_spike(uint64_t n, uint64_t seed);

// A distribution of n values. Two calls with equal n and seed give equal values.
struct Distribution {
  std::string name;
  std::vector<float> (*draw)(uint64_t n, uint64_t seed);
};

// gauss, laplace, student_t (3 degrees), constant, zero, sparse (1 % non-zero), spike (one large
// entry), sorted, alternating (two magnitudes, many ties), subnormal.
const std::vector<Distribution>& distributions();

// 0, 1, 2, 3, 31, 64, 1000, 65537: nothing, single entries, odd sizes, more than any tile.
const std::vector<uint64_t>& awkward_sizes();

// A distribution, and the sizes at which tests draw from it.
struct AwkwardInput {
  Distribution distribution;
  std::vector<uint64_t> sizes;
};

// Heavy tails and every distribution at the awkward sizes up to 1000; at 65537 only heavy tails,
// constant, sparse and alternating, so that a test over all inputs stays quick.
const std::vector<AwkwardInput>& awkward_inputs();

}  // namespace penstock::test
