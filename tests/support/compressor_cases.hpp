// What the tests of every compressor share: the comparison with an oracle for what one rank sends,
// the same at a size that counters and sums in float cannot hold, and what no plugin may differ in.
#pragma once

#include <functional>
#include <testing/data.hpp>
#include <testing/gtest.hpp>
#include <testing/rig.hpp>

namespace penstock::test {

// Whose work it is, and when: what chance and what a method remembers may depend on.
struct Sender {
  uint64_t seed;
  uint64_t item;
  uint64_t step;
  uint32_t rank;
};

// What a rank sends for `work`, decoded, as long as work; plain loops from the mathematics. An
// oracle that remembers begins anew in step 0 of a sender.
using SentOracle =
    std::function<std::vector<float>(const std::vector<float>& work, const Sender& sender)>;

// An oracle for methods that send something for each element by itself.
SentOracle each_element(const std::function<float(float)>& sent);

// Shapes of one dimension.
std::vector<Shape> vectors(const std::vector<uint64_t>& numels);
// Of awkward_sizes().
std::vector<Shape> awkward_vectors();

struct Comparison {
  LoadedPlugin plugin;
  OptionSettings options = {};
  std::vector<Shape> shapes = {};
  RigSettings rig = {};
  uint64_t steps = 1;
  bool keeps = true;  // with a residual
};

// Every mean, what each rank sent and what it keeps equal the oracle's to the bit: work = kept +
// gradient, kept = work - sent, mean = the sum of what is sent in ascending order of ranks, divided
// by their number. For methods whose result is not final and whose payloads are not rounded as a
// sum, or for one rank.
void expect_equals(const Comparison& comparison, const SentOracle& oracle,
                   const Distribution& distribution);

// 1549 x 10831: no multiple of a vector, block or tile, and beyond the integers that floats count
// by ones.
inline constexpr uint64_t kLargeNumel = (uint64_t{1} << 24) + 3;
inline const Shape kLargeMatrix{1549, 10831};
static_assert(kLargeNumel == 1549 * 10831);

// Gaussian entries; and runs of one constant, of exact zeros and of alternating entries: a sum kept
// in a float stands still, ties and zeros abound.
const std::vector<Distribution>& large_distributions();

// expect_equals for one rank and one gradient of kLargeNumel entries, a vector unless the
// comparison has another shape, on large_distributions().
void expect_large_gradients_equal(Comparison comparison, const SentOracle& oracle);

// The same step with a residual gives the same bits on every code path, on one thread and on three.
void expect_one_result_wherever_it_runs(const LoadedPlugin& plugin, const OptionSettings& options,
                                        const std::vector<Shape>& shapes = {{140003}});

// A compressor that compensates in its encode against the same with a separate compensate: equal
// results, work and momentum to the bit, over 20 steps of every distribution, for residual and both
// forms of dgc, with a loss scale, void and skipped steps. The tolerance is RigSettings'.
void expect_folding_changes_no_bit(const LoadedPlugin& compressor, const OptionSettings& options,
                                   const std::vector<Shape>& shapes, double mass_tolerance = 0);

// A gradient of 2^32 entries, which indices of 32 bits cannot name, is refused by its name.
void expect_huge_gradients_are_refused(const LoadedPlugin& plugin);

}  // namespace penstock::test
