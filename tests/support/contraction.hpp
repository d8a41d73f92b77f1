// The part of a gradient that a compressor leaves is smaller than the gradient by a claimed share:
// x - C(x)|^2 <= (1 - share) |x|^2. Convergence proofs of error feedback need this property.
#pragma once

#include <functional>
#include <testing/gtest.hpp>
#include <testing/rig.hpp>

namespace penstock::test {

// The share that a rank must have sent of an item after a step.
using SentShare = std::function<double(const CompressorRig& rig, uint32_t rank, uint64_t item)>;

// The number of sent entries divided by all entries. The k largest entries, or all entries above a
// threshold, have at least this share.
double share_of_entries(const CompressorRig& rig, uint32_t rank, uint64_t item);
// The share of the k largest entries, k = kept_of(entries, density), independent of the number that
// the compressor has sent.
SentShare share_of_the_largest(double density);
// The claim is only that the rest is not larger than the gradient.
double no_share(const CompressorRig& rig, uint32_t rank, uint64_t item);

struct Contraction {
  LoadedPlugin plugin;
  OptionSettings options = {};
  std::vector<Shape> shapes = {};
  SentShare share = share_of_entries;
  uint32_t ranks = 2;
  uint64_t steps = 6;
  // Relative to |x|^2. If a method sends entries uncompressed, the other entries do not change, and
  // only the sums of this test round.
  double rounding = 1e-12;
  // 1: the L1 norm, without a square.
  int power = 2;
  // The claim holds for the mean over steps. In each step the rest is only not larger than the
  // gradient.
  bool in_the_mean = false;
  // C(x) is an orthogonal projection of x: |x - C(x)|^2 = |x|^2 - |C(x)|^2.
  bool projects = false;
};

// Checks the claim on every rank, item and step of every distribution, with a residual. x is the
// gradient plus the kept values.
void expect_contraction(const Contraction& contraction);

}  // namespace penstock::test
