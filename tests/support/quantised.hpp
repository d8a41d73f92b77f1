// Tests for every method that sends a code for each element, with an oracle for one rank's payload.
#pragma once

#include <cmath>
#include <penstock/views.hpp>
#include <support/coded.hpp>
#include <support/conservation.hpp>

namespace penstock::test {

// Every distribution and awkward size, 1 to 4 ranks, two steps, without a memory.
inline void expect_equals_oracle(const LoadedPlugin& plugin, const OptionSettings& options,
                                 const SentOracle& oracle) {
  uint32_t ranks = 0;
  for (const Distribution& distribution : distributions()) {
    ranks = ranks % 4 + 1;
    expect_equals({.plugin = plugin,
                   .options = options,
                   .shapes = awkward_vectors(),
                   .rig = {.ranks = ranks, .ranks_per_slice = ranks == 4 ? 2u : 0u},
                   .steps = 2,
                   .keeps = false},
                  oracle, distribution);
  }
}

// With a residual nothing is lost over 100 steps of every kind, on 1 to 4 ranks. Encode subtracts
// the sent values and rounds by 2^-24 of a sent value. A sent value may be the norm of 512
// elements, which is 23 times the largest element.
inline void expect_conserves(const LoadedPlugin& plugin, const OptionSettings& options) {
  uint32_t ranks = 0;
  for (const Distribution& distribution : distributions()) {
    ranks = ranks % 4 + 1;
    CompressorRig rig({.ranks = ranks, .check_mass = true, .mass_tolerance = 2e-6},
                      {{10, 20}, {0}, {1}, {31}, {1500}}, plugin, options,
                      load_plugin("memory", "residual"));
    expect_conservation(rig, distribution, 100, KeptSize::kByLargest);
  }
}

// x - C(x)|^2 <= (1 - |x|_1^2 / (n |x|^2)) |x|^2, the bound for signs times the mean magnitude.
inline void expect_the_contraction_of_one_scale(const LoadedPlugin& plugin) {
  for (const Distribution& distribution : distributions()) {
    const std::vector<float> x = distribution.draw(1000, 3);
    CompressorRig rig({.ranks = 1}, {{1000}}, plugin);
    rig.step({{x}});
    double left = 0, l1 = 0, squares = 0;
    for (uint64_t e = 0; e < x.size(); ++e) {
      left += std::pow(double{x[e]} - rig.sent(0, 0)[e], 2);
      l1 += std::fabs(double{x[e]});
      squares += std::pow(double{x[e]}, 2);
    }
    // 1e-6 because the numbers are sent as floats. Subnormal floats are coarser.
    const double rounding = distribution.name == "subnormal" ? 1e-3 : 1e-6;
    EXPECT_LE(left, squares - l1 * l1 / 1000 + rounding * squares) << distribution.name;
  }
}

// The mean of the decoded payloads for `values` over `steps` steps is within a few deviations of
// `values`. One draw of an element has a deviation of at most `deviation(element)`.
inline void expect_unbiased(const LoadedPlugin& plugin, const OptionSettings& options,
                            const std::vector<float>& values, uint64_t steps,
                            const std::function<double(uint64_t)>& deviation) {
  CompressorRig rig({.ranks = 1}, {{static_cast<int64_t>(values.size())}}, plugin, options);
  std::vector<double> sum(values.size());
  for (uint64_t step = 0; step < steps; ++step) {
    rig.step({{values}});
    for (uint64_t e = 0; e < sum.size(); ++e) sum[e] += double{rig.sent(0, 0)[e]};
  }
  const auto n = static_cast<double>(steps);
  // 5.5 deviations of the mean: one failure in 20 million per element, and the seed is fixed. 1e-5
  // of the largest value covers the bias of the fixed-point rounding, 2^-17 of a step.
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(double{value}));
  for (uint64_t e = 0; e < sum.size(); ++e)
    ASSERT_NEAR(sum[e] / n, double{values[e]}, 5.5 * deviation(e) / std::sqrt(n) + 1e-5 * largest)
        << "element " << e;
}

// Payloads of random bytes and counts are decoded, or refused with the rank. Nothing else happens.
inline void expect_any_bytes_are_survived(CompressorRig& rig) {
  Random random(17);
  const uint64_t numel = rig.numel(0);
  for (int round = 0; round < 300; ++round) {
    const PayloadPointer payload = encode_once(rig, heavy_tailed(numel, 3));
    payload->c()->rank = 3;
    for (uint64_t s = 0; s < payload->n_sections(); ++s) {
      penstock_section& section = payload->section(s);
      auto* const bytes = static_cast<unsigned char*>(section.data);
      const uint64_t size = section.capacity * sdk::dtype_bytes(section.dtype);
      for (uint64_t flips = random.below(4); size > 0 && flips > 0; --flips)
        bytes[random.below(size)] = static_cast<unsigned char>(random.bits());
      if (random.below(4) == 0) section.count = random.below(section.capacity + 3);
    }
    const Outcome outcome = decode_once(rig, *payload);
    EXPECT_TRUE(payload->intact());
    if (outcome.ok()) continue;
    EXPECT_EQ(outcome.code, uint32_t{PENSTOCK_INVALID_PAYLOAD}) << outcome.message;
    EXPECT_NE(outcome.message.find("rank 3"), std::string::npos) << outcome.message;
  }
}

}  // namespace penstock::test
