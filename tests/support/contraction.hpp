// What a compressor leaves of a gradient is smaller than the gradient by the share that it claims:
// |x - C(x)|^2 <= (1 - share) |x|^2. Convergence proofs of error feedback rest on it.
#pragma once

#include <functional>
#include <testing/gtest.hpp>
#include <testing/rig.hpp>

namespace penstock::test {

// The share that is certainly sent of an item by a rank, after a step.
using SentShare = std::function<double(const CompressorRig& rig, uint32_t rank, uint64_t item)>;

// Entries sent over entries: what the k largest, or all that reach a threshold, take with them.
double share_of_entries(const CompressorRig& rig, uint32_t rank, uint64_t item);
// That of the k largest, k = kept_of(entries, density), whatever the compressor says it sent.
SentShare share_of_the_largest(double density);
// Nothing is claimed but that the rest is not larger than the gradient.
double no_share(const CompressorRig& rig, uint32_t rank, uint64_t item);

struct Contraction {
  LoadedPlugin plugin;
  OptionSettings options = {};
  std::vector<Shape> shapes = {};
  SentShare share = share_of_entries;
  uint32_t ranks = 2;
  uint64_t steps = 6;
  // Of |x|^2. Methods that send entries as they are leave the others as they are, and only the sums
  // of this test round.
  double rounding = 1e-12;
  // 1: in the L1 norm, not squared.
  int power = 2;
  // The claim holds for the mean over steps, in each step only that the rest is not larger.
  bool in_the_mean = false;
  // C(x) is an orthogonal projection of x: |x - C(x)|^2 = |x|^2 - |C(x)|^2.
  bool projects = false;
};

// On every rank, item and step of every distribution, with a residual: x is the gradient and what
// was kept.
void expect_contraction(const Contraction& contraction);

}  // namespace penstock::test
