// What every method that sends codes for elements must do, given an oracle for what one rank sends.
#pragma once

#include <cmath>
#include <penstock/views.hpp>
#include <support/coded.hpp>
#include <support/conservation.hpp>

namespace penstock::test {

// What a rank sends for `values`, decoded; plain loops from the mathematics. Chance comes from
// drawn_word(by, element).
using SentOracle = std::function<std::vector<float>(const std::vector<float>&, const DrawnBy&)>;

// Words of stochastic rounding: stream 4 of random_normal.hpp.
inline DrawnBy rounding_words(const CompressorRig& rig, uint32_t rank, uint64_t item) {
  return {rig.step_facts(rank).seed, item, stream_in_step(4, rig.steps()), rank};
}

// Every distribution and awkward size, 1 to 4 ranks, two steps: what each rank sends is the
// oracle's to the bit, and the result is their sum in ascending order, divided by the ranks.
inline void expect_equals_oracle(const LoadedPlugin& plugin, const OptionSettings& options,
                                 const SentOracle& oracle) {
  uint32_t ranks = 0;
  for (const Distribution& distribution : distributions()) {
    ranks = ranks % 4 + 1;
    CompressorRig rig({.ranks = ranks, .ranks_per_slice = ranks == 4 ? 2u : 0u}, awkward_vectors(),
                      plugin, options);
    for (uint64_t step = 0; step < 2; ++step) {
      const RankTensors gradients = draw_gradients(distribution.draw, ranks, awkward_sizes(), step);
      std::vector<std::vector<DrawnBy>> by(ranks);
      for (uint32_t r = 0; r < ranks; ++r)
        for (uint64_t i = 0; i < rig.n_items(); ++i) by[r].push_back(rounding_words(rig, r, i));
      const Tensors mean = rig.step(gradients);
      for (uint64_t i = 0; i < rig.n_items(); ++i) {
        std::vector<float> sum(mean[i].size());
        for (uint32_t r = 0; r < ranks; ++r) {
          const std::vector<float> expected = oracle(gradients[r][i], by[r][i]);
          ASSERT_EQ(rig.sent(r, i), expected) << distribution.name << ", item " << i;
          for (uint64_t e = 0; e < sum.size(); ++e) sum[e] += expected[e];
        }
        for (float& value : sum) value /= static_cast<float>(ranks);
        ASSERT_EQ(mean[i], sum) << distribution.name << ", item " << i;
      }
    }
  }
}

// With a residual nothing is lost over 100 steps of every kind, on 1 to 4 ranks; and encode takes
// out what it sends, up to the rounding of that subtraction: 2^-24 of what is sent, which may be
// the norm of 512 elements and so 23 times the largest of them.
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

// The same step with every code path gives the same bits, with and without a memory.
inline void expect_one_result_on_every_code_path(const LoadedPlugin& plugin,
                                                 const OptionSettings& options) {
  const RankTensors gradients = draw_gradients(heavy_tailed, 2, {70001}, 5);
  Tensors first;
  std::vector<float> kept;
  for (const char* path : {"portable", "avx2", "avx512"}) {  // replaced where it does not run
    set_code_path(path);
    CompressorRig rig({.ranks = 2}, {{70001}}, plugin, options, load_plugin("memory", "residual"));
    const Tensors mean = rig.step(gradients);
    if (first.empty()) first = mean, kept = rig.work(1, 0);
    EXPECT_EQ(mean, first) << path;
    EXPECT_EQ(rig.work(1, 0), kept) << path;
  }
  set_code_path("");
}

// The mean of what is sent for `values` over `steps` steps lies within a few deviations of
// them, where the deviation of one draw of an element is at most `deviation(element)`.
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
  // 5.5 deviations of the mean: one in 20 million per element; the seed is fixed. 1e-5 of the
  // largest for the bias of 2^-17 of a step that the fixed-point rounding has.
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(double{value}));
  for (uint64_t e = 0; e < sum.size(); ++e)
    ASSERT_NEAR(sum[e] / n, double{values[e]}, 5.5 * deviation(e) / std::sqrt(n) + 1e-5 * largest)
        << "element " << e;
}

// Payloads of random bytes and counts are decoded or refused by rank, and nothing else happens.
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
