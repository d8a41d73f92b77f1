// Inputs and checks for the tests of every low-rank compressor. They do not depend on which factor
// travels in which step.
#pragma once

#include <support/compressor_cases.hpp>
#include <support/contraction.hpp>
#include <support/low_rank_oracle.hpp>

#include <string>

namespace penstock::test::low_rank {

// A matrix of rank 1: the columns of a wider factor depend on each other.
inline std::vector<float> thin_matrix(uint64_t rows, uint64_t cols) {
  std::vector<float> thin(rows * cols);
  for (uint64_t e = 0; e < thin.size(); ++e)
    thin[e] = std::cos(static_cast<float>(e / cols)) * std::sin(static_cast<float>(e % cols));
  return thin;
}

// The squared distance as a share of the square of `expected`.
inline double squared_error(const std::vector<float>& got, const std::vector<float>& expected,
                            double scale = 1) {
  double difference = 0, square = 0;
  for (uint64_t e = 0; e < expected.size(); ++e) {
    difference += std::pow(scale * got[e] - expected[e], 2);
    square += std::pow(expected[e], 2);
  }
  return difference / square;
}

// The columns of factor[n x rank] have length 1 and are orthogonal, up to the rounding of the
// orthogonalisation.
inline void expect_orthonormal(const std::vector<float>& factor, uint64_t rank,
                               const std::string& what) {
  for (uint64_t j = 0; j < rank; ++j)
    for (uint64_t k = 0; k <= j; ++k) {
      double dot = 0;
      for (uint64_t i = 0; i < factor.size() / rank; ++i)
        dot += double{factor[i * rank + j]} * factor[i * rank + k];
      EXPECT_NEAR(dot, j == k ? 1 : 0, 1e-5) << what << ": columns " << j << " and " << k;
    }
}

// The mean of gradient `i`. The tolerance is `relative` times its largest entry.
inline void expect_mean(const Tensors& mean, const RankTensors& gradients, uint64_t i,
                        double relative, const std::string& what) {
  const std::vector<double> sum = oracle::sum_of(gradients, i);
  const auto ranks = static_cast<double>(gradients.size());
  for (uint64_t e = 0; e < sum.size(); ++e)
    ASSERT_NEAR(mean[i][e], sum[e] / ranks, relative * (oracle::largest(sum) + 1e-2) / ranks)
        << what << ", item " << i << ", element " << e;
}

// `Oracle` is a low-rank method in double, for one matrix of all ranks. Its step adds the ranks'
// gradients to the kept values and returns the mean that is applied:
//   Oracle(uint32_t ranks, uint64_t rows, uint64_t cols, uint64_t rank, uint64_t gradient)
//   oracle::Matrix step(uint64_t index, const std::vector<oracle::Matrix>& gradients)
//
// The rig's means must equal the means of `Oracle`, up to `tolerance` times the largest entry.
// gradients(step) returns gradients of `shapes`. Gradients of less than two dimensions travel
// uncompressed.
template <typename Oracle, typename Gradients>
void expect_follows(CompressorRig& rig, const std::vector<Shape>& shapes, uint64_t rank,
                    uint64_t steps, double tolerance, Gradients&& gradients) {
  std::vector<Oracle> oracles;
  for (uint64_t i = 0; i < shapes.size(); ++i) {
    const oracle::View view = oracle::view_of(shapes[i]);
    oracles.emplace_back(rig.ranks(), view.rows, view.cols, std::min({rank, view.rows, view.cols}),
                         i);
  }
  for (uint64_t step = 0; step < steps; ++step) {
    const RankTensors of_step = gradients(step);
    const Tensors mean = rig.step(of_step);
    for (uint64_t i = 0; i < shapes.size(); ++i) {
      const oracle::View view = oracle::view_of(shapes[i]);
      std::vector<oracle::Matrix> of_ranks;
      for (const Tensors& of_rank : of_step)
        of_ranks.emplace_back(view.rows, view.cols, of_rank[i]);
      oracle::Matrix expected(view.rows, view.cols);
      if (shapes[i].size() < 2)
        for (const oracle::Matrix& of_rank : of_ranks)
          expected = oracle::combined(expected, 1.0 / rig.ranks(), of_rank);
      else
        expected = oracles[i].step(step, of_ranks);
      const double bound = tolerance * oracle::largest(expected.entries);
      for (uint64_t e = 0; e < expected.entries.size(); ++e)
        ASSERT_LE(std::fabs(double{mean[i][e]} - expected.entries[e]), bound)
            << "item " << i << " element " << e << " step " << step << " ranks " << rig.ranks();
    }
  }
}

// Over many steps on 1 to 4 ranks, with rank 3 and a rate of 0: shapes of every kind, and
// gradients as training gives them.
template <typename Oracle>
void expect_follows_over_many_steps(const LoadedPlugin& plugin, uint64_t steps) {
  const std::vector<Shape> shapes = {{12, 7}, {7, 30}, {6, 5, 3}, {65, 130}, {17}, {1, 9}, {9, 1}};
  for (const uint32_t ranks : {1u, 2u, 3u, 4u, 8u}) {
    CompressorRig rig({.ranks = ranks, .check_mass = true, .mass_tolerance = 1e-6}, shapes, plugin,
                      {{"rank", 3}, {"minimum_compression_rate", 0.0}},
                      load_plugin("memory", "residual"));
    // Float products of up to 130 terms are rounded, and the steps carry the rounding along.
    expect_follows<Oracle>(rig, shapes, 3, steps, 2e-5, [&](uint64_t step) {
      return oracle::layered_gradients(shapes, ranks, step);
    });
  }
}

// Uses distributions without a gap between strong and weak directions. Three cases are special:
// - Constant and alternating matrices have fewer than three directions. A method may replace a
//   missing direction by any other, so the rank is 1.
// - A spike leaves its rounding in the float residual. This rounding is as large as the other
//   entries and turns the factors of later steps. So a spike runs for one period of the phases.
// - Zeros have no direction, and products of subnormal numbers are zero in float. Both are left
// out.
template <typename Oracle>
void expect_follows_on_every_distribution(const LoadedPlugin& plugin, uint64_t period) {
  const std::vector<Shape> shapes = {{65, 130}, {50, 6, 7}, {31, 64}, {1000}, {3}};
  std::vector<uint64_t> numels;
  for (const Shape& shape : shapes)
    numels.push_back(oracle::view_of(shape).rows * oracle::view_of(shape).cols);
  for (const Distribution& distribution : distributions())
    for (uint32_t ranks = 1; ranks <= 4; ++ranks) {
      const std::string& name = distribution.name;
      if (name == "zero" || name == "subnormal") continue;
      const int rank = name == "constant" || name == "alternating" ? 1 : 3;
      CompressorRig rig({.ranks = ranks, .check_mass = true, .mass_tolerance = 1e-6}, shapes,
                        plugin, {{"rank", rank}, {"minimum_compression_rate", 0.0}},
                        load_plugin("memory", "residual"));
      // Float products of up to 130 terms are rounded, and the steps carry the rounding along.
      SCOPED_TRACE(name);
      const uint64_t steps = name == "spike" ? period : 4;
      expect_follows<Oracle>(
          rig, shapes, static_cast<uint64_t>(rank), steps, 2e-5,
          [&](uint64_t step) { return draw_gradients(distribution.draw, ranks, numels, step); });
    }
}

// A matrix of kLargeNumel entries. The rank is 1 because a constant matrix has no second direction.
template <typename Oracle>
void expect_large_matrices_follow(const LoadedPlugin& plugin) {
  for (const Distribution& distribution : large_distributions()) {
    CompressorRig rig({.ranks = 1}, {kLargeMatrix}, plugin,
                      {{"rank", 1}, {"minimum_compression_rate", 0.0}},
                      load_plugin("memory", "residual"));
    // Float rounding of sums over up to 10831 terms.
    expect_follows<Oracle>(rig, {kLargeMatrix}, 1, 1, 1e-4, [&](uint64_t step) {
      return draw_gradients(distribution.draw, 1, {kLargeNumel}, step);
    });
  }
}

// Runs 100 steps. Some steps are forgotten, and some are void on one rank. The sum of the sent and
// the kept values must equal the sum of all gradients. Only some items keep values, and `shapes`
// has the shapes of these items.
inline void expect_balance(CompressorRig& rig, const std::vector<Shape>& shapes, uint32_t ranks) {
  std::vector<std::vector<double>> balance;  // gradients less updates
  for (uint64_t i = 0; i < shapes.size(); ++i) balance.emplace_back(rig.numel(i), 0.0);
  for (uint64_t step = 0; step < 100; ++step) {
    StepSettings settings;
    if (step % 10 == 3) settings.forgotten = true;
    if (step % 10 == 6) settings.void_rank = step / 10 % ranks;
    const RankTensors gradients = oracle::layered_gradients(shapes, ranks, step);
    const Tensors mean = rig.step(gradients, settings);
    for (uint64_t i = 0; i < shapes.size() && !settings.forgotten; ++i)
      for (uint64_t e = 0; e < balance[i].size(); ++e) {
        for (uint32_t r = 0; r < ranks; ++r)
          if (settings.void_rank != r) balance[i][e] += gradients[r][i][e];
        if (!settings.void_rank) balance[i][e] -= ranks * mean[i][e];
      }
  }
  for (uint64_t i = 0; i < shapes.size(); ++i)
    for (uint64_t e = 0; e < balance[i].size(); ++e) {
      double kept = 0;
      for (uint32_t r = 0; r < ranks; ++r) kept += rig.work(r, i)[e];
      // 300 float additions of terms up to 10, each rounded to 1e-6 at most.
      ASSERT_NEAR(kept, balance[i][e], 2e-4) << "item " << i << " element " << e;
    }
}

// A rank sends an orthogonal projection of its own matrix, so the rest is never larger than the
// matrix.
inline void expect_sends_projections(const LoadedPlugin& plugin) {
  for (const uint32_t ranks : {1u, 3u})
    expect_contraction({.plugin = plugin,
                        .options = {{"rank", 3}, {"minimum_compression_rate", 0.0}},
                        .shapes = {{20, 33}, {40, 3, 3}, {2, 9}, {17}},
                        .share = no_share,
                        .ranks = ranks,
                        // Float products over up to 40 terms, with factors orthonormal to 1e-6.
                        .rounding = 1e-5,
                        .projects = true});
}

// Gradients without factors travel whole. Encode only subtracts the sent values.
inline void expect_dense_is_taken_out(const LoadedPlugin& plugin) {
  CompressorRig rig({.ranks = 2, .check_mass = true, .keep = true}, {{9}, {1}, {0, 3}}, plugin);
  const RankTensors gradients = draw_gradients(heavy_tailed, 2, {9, 1, 0}, 0);
  rig.step(gradients);  // the rig compares the values that encode subtracted with the decoded
                        // payload
  EXPECT_EQ(rig.sent(1, 0), gradients[1][0]);
}

// Steps of zeros, and steps in which no rank has data, give zeros. They change no factor in
// `names`, in any order of these steps.
inline void expect_zeros_keep_factors(const LoadedPlugin& plugin,
                                      const std::vector<std::string>& names) {
  CompressorRig rig({.ranks = 2}, {{40, 40}}, plugin);
  const RankTensors zeros(2, Tensors{std::vector<float>(1600, 0.0f)});
  for (uint64_t step = 0; step < 2; ++step) rig.step(draw_gradients(heavy_tailed, 2, {1600}, step));
  Tensors before;
  for (const std::string& name : names) before.push_back(rig.compressor_state(0, 0, name.c_str()));
  StepSettings silent;  // no rank has data: the sum is absent
  silent.joined = {0, 1};
  for (const bool data : {true, false, false, true})
    EXPECT_EQ(rig.step(zeros, data ? StepSettings{} : silent)[0], zeros[0][0]);
  for (uint64_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(rig.compressor_state(0, 0, names[i].c_str()), before[i]) << names[i];
    EXPECT_NE(before[i], std::vector<float>(before[i].size(), 0.0f)) << names[i];
  }
}

// `payload`, as the sum of round 0 for `item`, must be refused as an invalid payload of this
// method.
inline void expect_sum_refused(CompressorRig& rig, const std::vector<const penstock_item*>& items,
                               const std::vector<const penstock_payload*>& payloads,
                               const char* gradient) {
  const penstock_step step = rig.step_facts(0);
  const penstock_exec exec = rig.exec();
  const CompressorInstance& compressor = rig.compressor(0);
  EXPECT_TRUE(fails_with(
      compressor.table().decode(compressor.self(), &exec, &step, 0, items.data(), items.size(),
                                payloads.data(), 1, PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST),
      PENSTOCK_INVALID_PAYLOAD, gradient));
}

}  // namespace penstock::test::low_rank
