// Cases for the tests of every compressor: the comparison of one rank's payload with an oracle,
// that comparison at a size that float counters and float sums cannot hold, and rules for all
// plugins.
#pragma once

#include <functional>
#include <testing/data.hpp>
#include <testing/gtest.hpp>
#include <testing/rig.hpp>

namespace penstock::test {

// The sender of a payload and the step. Random numbers and memories of a method may depend on
// these.
struct Sender {
  uint64_t seed;
  uint64_t item;
  uint64_t step;
  uint32_t rank;
};

// The decoded payload of a rank for `work`, as long as `work`, in plain loops from the mathematics.
// An oracle with a memory begins anew in step 0 of a sender.
using SentOracle =
    std::function<std::vector<float>(const std::vector<float>& work, const Sender& sender)>;

// An oracle for methods that send each element independently.
SentOracle each_element(const std::function<float(float)>& sent);

// Shapes of one dimension.
std::vector<Shape> vectors(const std::vector<uint64_t>& numels);
// Vectors with the lengths of awkward_sizes().
std::vector<Shape> awkward_vectors();

struct Comparison {
  LoadedPlugin plugin;
  OptionSettings options = {};
  std::vector<Shape> shapes = {};
  RigSettings rig = {};
  uint64_t steps = 1;
  bool keeps = true;  // with memory `residual`
};

// Every mean, every payload and the kept values of each rank equal the oracle's values, to the bit:
// work = kept + gradient, kept = work - sent, mean = the sum of the sent values in ascending order
// of ranks, divided by the number of ranks. The result of the method must not be final, and its
// payloads must not be rounded as a sum, unless there is one rank.
void expect_equals(const Comparison& comparison, const SentOracle& oracle,
                   const Distribution& distribution);

// 1549 x 10831: no multiple of a vector, block or tile, and beyond the integers that floats count
// by ones.
inline constexpr uint64_t kLargeNumel = (uint64_t{1} << 24) + 3;
inline const Shape kLargeMatrix{1549, 10831};
static_assert(kLargeNumel == 1549 * 10831);

// Gaussian entries, and runs of constant, zero and alternating entries. On the runs a sum in a
// float stops growing, and many entries are zero or tie.
const std::vector<Distribution>& large_distributions();

// expect_equals for one rank and one gradient of kLargeNumel entries, a vector unless the
// comparison has another shape, on large_distributions(). Outside of long runs a vector of Gaussian
// entries is shorter.
void expect_large_gradients_equal(Comparison comparison, const SentOracle& oracle);

// One step with a residual gives equal bits on every code path, on one thread and on three.
void expect_one_result_wherever_it_runs(const LoadedPlugin& plugin, const OptionSettings& options,
                                        const std::vector<Shape>& shapes = {{140003}});

// Compares a compressor that compensates in its encode with a separate compensate. Results, work
// and momentum must be equal to the bit, over 20 steps of every distribution, for residual and both
// forms of dgc, with a loss scale, void and skipped steps. The tolerance is the one in RigSettings.
void expect_folding_changes_no_bit(const LoadedPlugin& compressor, const OptionSettings& options,
                                   const std::vector<Shape>& shapes, double mass_tolerance = 0);

// A gradient of 2^32 entries is refused, and the message names it: indices have only 32 bits.
void expect_huge_gradients_are_refused(const LoadedPlugin& plugin);

}  // namespace penstock::test
