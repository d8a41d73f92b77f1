// Inputs for tests: fixed seeds, the same values on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::test {

// A small generator of our own (SplitMix64), so that values do not depend on the standard library.
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
// Zeros around one entry of 1e4 or -1e4: within float16, also twice.
std::vector<float> small_spike(uint64_t n, uint64_t seed);

// A way to draw n values. Two calls with the same n and seed give the same.
struct Distribution {
  std::string name;
  std::vector<float> (*draw)(uint64_t n, uint64_t seed);
};

// gauss, laplace, student_t (3 degrees), constant, zero, sparse (1 % non-zero), spike (one large
// entry), sorted, alternating (two magnitudes, many ties), subnormal.
const std::vector<Distribution>& distributions();

// 0, 1, 2, 3, 31, 64, 1000, 65537: nothing, single entries, odd sizes, more than any tile.
const std::vector<uint64_t>& awkward_sizes();

// What to draw at which sizes.
struct AwkwardInput {
  Distribution distribution;
  std::vector<uint64_t> sizes;
};

// Heavy tails and every distribution at the awkward sizes up to 1000; of 65537 only heavy tails,
// constant, sparse and alternating, so that a test over all of this stays quick.
const std::vector<AwkwardInput>& awkward_inputs();

}  // namespace penstock::test
