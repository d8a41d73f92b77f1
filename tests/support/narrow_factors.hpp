// Factors that travel in 16 bits: the checks that the tests of every low-rank compressor share.
#pragma once

#include <support/half.hpp>
#include <support/low_rank_cases.hpp>

#include <array>

namespace penstock::test::low_rank {

// Factors of an oracle on the wire: doubles, or numbers of `type`.
struct OracleWire {
  const SummedType* type = nullptr;

  // What one of `ranks` sends.
  oracle::Matrix sent(oracle::Matrix factor, uint64_t ranks) const {
    if (type != nullptr)
      for (double& value : factor.entries)
        value = double{type->sent(static_cast<float>(value), static_cast<uint32_t>(ranks))};
    return factor;
  }
  oracle::Matrix summed(oracle::Matrix sum) const {
    if (type != nullptr)
      for (double& value : sum.entries) value = double{type->rounded(static_cast<float>(value))};
    return sum;
  }
};

// fp16 and bf16; `unit` is the largest relative distance between two neighbours.
struct NarrowType {
  const SummedType* type;
  double unit;
};
inline std::array<NarrowType, 2> narrow_types() {
  return {{{&summed_types()[1], 0x1p-10}, {&summed_types()[2], 0x1p-7}}};
}

inline OptionSettings narrow_options(const NarrowType& narrow, int rank) {
  return {{"rank", rank}, {"minimum_compression_rate", 0.0}, {"value_type", narrow.type->name}};
}

// An oracle whose factors are numbers of the narrow type at this place.
template <typename Oracle, size_t kPlace>
struct Narrowed : Oracle {
  template <typename... Arguments>
  explicit Narrowed(Arguments... arguments) : Oracle(arguments...) {
    this->wire.type = narrow_types()[kPlace].type;
  }
};

// The means follow the oracle with rounded factors, on 1 to 4 ranks. The rig checks that work loses
// what the payload stands for, to 1e-6: a residual of unrounded factors is off by a thousand times
// that.
template <typename Oracle, size_t kPlace>
void expect_narrow_factors_follow(const LoadedPlugin& plugin) {
  const NarrowType narrow = narrow_types()[kPlace];
  const std::vector<Shape> shapes = {{12, 7}, {6, 5, 3}, {65, 130}, {17}, {1, 9}, {9, 1}};
  for (const uint32_t ranks : {1u, 2u, 3u, 4u}) {
    CompressorRig rig({.ranks = ranks, .check_mass = true, .mass_tolerance = 1e-6}, shapes, plugin,
                      narrow_options(narrow, 3), load_plugin("memory", "residual"));
    // The runtime's products are float: where a product lies between two numbers of the type, it
    // may go to the other one, and a sum too.
    expect_follows<Narrowed<Oracle, kPlace>>(
        rig, shapes, 3, 4, 2 * narrow.unit,
        [&](uint64_t step) { return oracle::layered_gradients(shapes, ranks, step); });
  }
}

// At rank 1 the known factor of a matrix with one row or one column is 1 or -1. Then the factor of
// `shape` that travels in every `period`-th step, from step 0 on, has the numbers of the matrix,
// and everything is known to the bit: a rank sends its rounded numbers, within its share of the
// type's largest number, and keeps the rest; the sum is formed in float32 and rounded once.
inline void expect_thin_matrices_to_the_bit(const LoadedPlugin& plugin, const Shape& shape,
                                            uint64_t period) {
  for (const NarrowType& narrow : narrow_types())
    for (const uint32_t ranks : {1u, 2u, 3u, 4u}) {
      CompressorRig rig({.ranks = ranks, .check_mass = true, .mass_tolerance = 1e-6}, {shape},
                        plugin, narrow_options(narrow, 1), load_plugin("memory", "residual"));
      const uint64_t n = rig.numel(0);
      for (uint64_t step = 0; step < 3 * period; ++step) {
        RankTensors gradients = draw_gradients(heavy_tailed, ranks, {n}, step);
        for (Tensors& of_rank : gradients) of_rank[0][n / 2] = 1e5f;  // above float16's range
        RankTensors x = gradients;
        for (uint32_t r = 0; r < ranks; ++r)
          for (uint64_t e = 0; e < n; ++e) x[r][0][e] += rig.work(r, 0)[e];
        const Tensors mean = rig.step(gradients);
        if (step % period != 0) continue;
        SCOPED_TRACE(sdk::text(narrow.type->name, ", ", ranks, " ranks, step ", step));
        for (uint64_t e = 0; e < n; ++e) {
          float sum = 0;
          for (uint32_t r = 0; r < ranks; ++r) {
            const float sent = narrow.type->sent(x[r][0][e], ranks);
            sum += sent;
            ASSERT_EQ(rig.work(r, 0)[e], x[r][0][e] - sent) << "rank " << r << ", element " << e;
          }
          ASSERT_EQ(mean[0][e], narrow.type->rounded(sum) / static_cast<float>(ranks)) << e;
        }
      }
    }
}

// A single rank's sum is its own factor: nothing at all is lost.
inline void expect_narrow_balance(const LoadedPlugin& plugin) {
  const std::vector<Shape> shapes = {{20, 33}, {40, 3, 3}};
  for (const NarrowType& narrow : narrow_types()) {
    CompressorRig rig({.ranks = 1}, shapes, plugin, narrow_options(narrow, 2),
                      load_plugin("memory", "residual"));
    expect_balance(rig, shapes, 1);
  }
}

// Factors have two bytes per number instead of four; vectors stay float32.
inline void expect_factors_take_half_the_bytes(const LoadedPlugin& plugin) {
  const std::vector<Shape> shapes = {{30, 50}, {9}};
  CompressorRig wide({.ranks = 2}, shapes, plugin);
  for (const auto& [name, dtype] :
       {std::pair{"fp16", PENSTOCK_FLOAT16}, {"bf16", PENSTOCK_BFLOAT16}}) {
    CompressorRig rig({.ranks = 2}, shapes, plugin, {{"value_type", name}});
    for (uint32_t phase = 0; phase < rig.period(); ++phase)
      for (uint64_t i = 0; i < shapes.size(); ++i) {
        const std::vector<PlannedRound>& rounds = rig.need(i, phase).rounds;
        ASSERT_EQ(rounds.size(), wide.need(i, phase).rounds.size());
        for (uint64_t r = 0; r < rounds.size(); ++r) {
          const penstock_section_bound& section = rounds[r].sections[0];
          EXPECT_EQ(section.dtype, i == 0 ? uint32_t{dtype} : uint32_t{PENSTOCK_FLOAT32}) << name;
          EXPECT_EQ(section.capacity, wide.need(i, phase).rounds[r].sections[0].capacity);
          EXPECT_EQ(rounds[r].c.combine, uint32_t{PENSTOCK_COMBINE_SUM});
          EXPECT_EQ((rounds[r].c.flags & PENSTOCK_ROUND_SAME_BITS) != 0, i == 0);
        }
      }
  }
}

// A sum of four bytes per number is not one of two.
inline void expect_wide_sums_are_refused(const LoadedPlugin& plugin) {
  CompressorRig rig({.ranks = 2}, {{40, 40}}, plugin, {{"value_type", "bf16"}});
  for (uint64_t step = 0; step < 2; ++step) rig.step(draw_gradients(heavy_tailed, 2, {1600}, step));
  const std::vector<float> p = rig.compressor_state(0, 0, "p");
  const PayloadPointer wide = dense_payload(std::vector<float>(160, 1.0f), -1);
  expect_sum_refused(rig, {rig.compressor_item(0, 0)}, {wide->c()}, "gradient0");
  EXPECT_EQ(rig.compressor_state(0, 0, "p"), p);
}

// Compensating in the same sweep, the code path and the number of threads do not show.
inline void expect_narrow_factors_are_the_same_everywhere(const LoadedPlugin& plugin) {
  const OptionSettings bf16{{"rank", 3}, {"value_type", "bf16"}};
  expect_folding_changes_no_bit(plugin, bf16, {{37, 20}, {64, 64}}, 1e-6);
  expect_one_result_wherever_it_runs(plugin, bf16, {{517, 1103}, {9, 7}});
}

}  // namespace penstock::test::low_rank
