// ARC-Top-K against products and full sorts in plain loops, and its behaviour at the edges.
#include <support/coded.hpp>
#include <support/compressor_cases.hpp>
#include <support/conservation.hpp>
#include <support/contraction.hpp>
#include <support/half.hpp>
#include <support/low_rank_cases.hpp>
#include <support/sparse_oracle.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace penstock::test {
namespace {

using oracle::Matrix;

// Of these, the first four are coded with rank 3 and density 0.15; the others travel whole.
const std::vector<Shape> kShapes{{20, 33}, {13, 3, 3}, {65, 130}, {2, 7},  {0}, {5, 0},
                                 {1},      {31},       {1, 40},   {40, 1}, {}};
const std::vector<uint64_t> kNumels{660, 117, 8450, 14, 0, 0, 1, 31, 40, 40, 1};
constexpr uint64_t kCoded = 4;

LoadedPlugin arctopk() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin residual() {
  return load_plugin("memory", "residual");
}

// The rows that all ranks choose in a step: the longest rows of sum_r G_r V, the lower of equal
// rows first. Each rank sends its product in `type`, and the sum is rounded once more.
std::vector<uint64_t> chosen_rows(const std::vector<Matrix>& of_ranks, uint64_t rank, uint64_t kept,
                                  uint64_t gradient, uint64_t step, const SummedType& type) {
  const Matrix v = oracle::normals(1, gradient, stream_in_step(1, step), of_ranks[0].cols, rank);
  Matrix sum(of_ranks[0].rows, rank);
  for (const Matrix& matrix : of_ranks) {
    const Matrix product = oracle::product(matrix, v);
    for (uint64_t e = 0; e < sum.entries.size(); ++e)
      sum.entries[e] +=
          type.sent(static_cast<float>(product.entries[e]), static_cast<uint32_t>(of_ranks.size()));
  }
  std::vector<float> norms(sum.rows);
  for (uint64_t row = 0; row < sum.rows; ++row) {
    double square = 0;
    for (uint64_t j = 0; j < rank; ++j)
      square += std::pow(double{type.rounded(static_cast<float>(sum.at(row, j)))}, 2);
    norms[row] = static_cast<float>(std::sqrt(square));
  }
  std::vector<uint64_t> order(sum.rows);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint64_t a, uint64_t b) { return norms[a] > norms[b]; });
  order.resize(kept);
  return order;
}

// x = e + g; the rows that all ranks choose are sent; e = the rest.
struct Oracle {
  std::vector<Shape> shapes;
  SummedType type;
  double density;
  uint64_t rank;
  RankTensors kept;

  static uint64_t rows_of(const Shape& shape) { return oracle::view_of(shape).rows; }
  bool coded(const Shape& shape) const {
    const oracle::View view = oracle::view_of(shape);
    const uint64_t sent = view.rows * rank + kept_of(view.rows, density) * view.cols;
    return shape.size() >= 2 && sent < view.rows * view.cols;
  }
  std::vector<uint64_t> chosen(uint64_t item, uint64_t step) const {
    const oracle::View view = oracle::view_of(shapes[item]);
    std::vector<Matrix> of_ranks;
    for (const Tensors& of_rank : kept) of_ranks.emplace_back(view.rows, view.cols, of_rank[item]);
    return chosen_rows(of_ranks, rank, kept_of(view.rows, density), item, step, type);
  }
  // Entry e of all ranks travels in `as`; returns the mean.
  float sent(uint64_t item, uint64_t e, const SummedType& as) {
    const auto ranks = static_cast<uint32_t>(kept.size());
    float total = 0;
    for (Tensors& of_rank : kept) {
      const float value = as.sent(of_rank[item][e], ranks);
      of_rank[item][e] -= value;
      total += value;
    }
    return as.rounded(total) / static_cast<float>(ranks);
  }
  Tensors step(const RankTensors& gradients, uint64_t index) {
    if (kept.empty()) {
      kept = gradients;
      for (Tensors& of_rank : kept)
        for (auto& of_item : of_rank) of_item.assign(of_item.size(), 0.0f);
    }
    Tensors mean;
    for (uint64_t i = 0; i < shapes.size(); ++i) {
      const uint64_t n = gradients[0][i].size(), cols = oracle::view_of(shapes[i]).cols;
      for (uint64_t r = 0; r < kept.size(); ++r)
        for (uint64_t e = 0; e < n; ++e) kept[r][i][e] += gradients[r][i][e];
      std::vector<float>& result = mean.emplace_back(n, 0.0f);
      if (coded(shapes[i])) {
        for (const uint64_t row : chosen(i, index))
          for (uint64_t e = row * cols; e < (row + 1) * cols; ++e) result[e] = sent(i, e, type);
      } else {
        for (uint64_t e = 0; e < n; ++e) result[e] = sent(i, e, summed_types()[0]);
      }
    }
    return mean;
  }
};

// Products of subnormal numbers are rounded so much that another row may be the longest.
bool decides_alike(const Distribution& distribution) {
  return distribution.name != "subnormal";
}

TEST(ArcTopK, EqualsTheOracleOver50Steps) {
  for (const Distribution& distribution : distributions())
    for (const uint32_t ranks : {1u, 2u, 3u, 4u, 8u}) {
      if (!decides_alike(distribution)) continue;
      if (ranks != 3 && distribution.name != "student_t") continue;
      CompressorRig rig({.ranks = ranks, .check_mass = true}, kShapes, arctopk(),
                        {{"density", 0.15}, {"rank", 3}}, residual());
      Oracle oracle{kShapes, summed_types()[0], 0.15, 3, {}};
      for (uint64_t i = 0; i < kShapes.size(); ++i) ASSERT_EQ(oracle.coded(kShapes[i]), i < kCoded);
      for (uint64_t step = 0; step < (ranks == 3 ? 50 : 5); ++step) {
        const RankTensors gradients = draw_gradients(distribution.draw, ranks, kNumels, step);
        ASSERT_EQ(rig.step(gradients), oracle.step(gradients, step)) << distribution.name << step;
        for (uint32_t r = 0; r < ranks; ++r)
          for (uint64_t i = 0; i < kCoded; ++i)  // the others are sent whole and keep nothing
            ASSERT_EQ(rig.work(r, i), oracle.kept[r][i]) << distribution.name;
      }
    }
}

TEST(ArcTopK, RanksDensitiesAndTypesEqualTheOracle) {
  const std::vector<Shape> shapes{{100, 64}, {37, 5, 11}, {3, 2000}, {1000}};
  const std::vector<uint64_t> numels{6400, 2035, 6000, 1000};
  for (const SummedType& type : summed_types())
    for (const auto& [rank, density] : {std::pair{1, 0.08}, {4, 0.08}, {7, 0.5}, {40, 0.01}}) {
      CompressorRig rig({.ranks = 3, .check_mass = true}, shapes, arctopk(),
                        {{"density", density}, {"rank", rank}, {"value_type", type.name}},
                        residual());
      Oracle oracle{shapes, type, density, static_cast<uint64_t>(rank), {}};
      for (uint64_t step = 0; step < 3; ++step) {
        const RankTensors gradients = draw_gradients(heavy_tailed, 3, numels, step);
        ASSERT_EQ(rig.step(gradients), oracle.step(gradients, step))
            << type.name << ", rank " << rank << ", density " << density;
      }
    }
}

TEST(ArcTopK, SixteenMillionElementsEqualTheOracle) {
  const auto longest_rows = [](const std::vector<float>& x, const Sender& sender) {
    const oracle::View view = oracle::view_of(kLargeMatrix);
    std::vector<float> sent(x.size());
    for (const uint64_t row :
         chosen_rows({Matrix(view.rows, view.cols, x)}, 1, kept_of(view.rows, 0.08), sender.item,
                     sender.step, summed_types()[0]))
      std::copy_n(x.begin() + static_cast<int64_t>(row * view.cols), view.cols,
                  sent.begin() + static_cast<int64_t>(row * view.cols));
    return sent;
  };
  expect_large_gradients_equal(
      {.plugin = arctopk(), .options = {{"rank", 1}}, .shapes = {kLargeMatrix}}, longest_rows);
}

TEST(ArcTopK, NothingIsLostOver100StepsOfEveryKind) {
  for (const char* type : {"fp32", "fp16", "bf16"})
    for (const Distribution& distribution : distributions()) {
      // A gradient that is sent whole is never given back.
      CompressorRig rig({.ranks = 3, .check_mass = true}, {{20, 33}, {13, 3, 3}}, arctopk(),
                        {{"density", 0.15}, {"rank", 3}, {"value_type", type}}, residual());
      expect_conservation(rig, distribution);
    }
}

// {rows, 20} where row r is values[r] times one row of ones.
std::vector<float> constant_rows(const std::vector<float>& values) {
  std::vector<float> matrix;
  for (const float value : values) matrix.insert(matrix.end(), 20, value);
  return matrix;
}

TEST(ArcTopK, RowsAreChosenByAllRanksTogether) {
  CompressorRig rig({.ranks = 2}, {{3, 20}}, arctopk());
  // Rank 0 alone would choose the first row, rank 1 the last row; together they choose the middle,
  // because the first rows of both ranks cancel.
  const Tensors mean = rig.step({{constant_rows({5, 2, 1})}, {constant_rows({-5, 2, -4})}});
  EXPECT_EQ(mean[0], constant_rows({0, 2, 0}));
}

TEST(ArcTopK, OfEqualRowsTheLowerAreSentFirst) {
  CompressorRig rig({.ranks = 2}, {{5, 20}}, arctopk(), {{"density", 0.4}}, residual());
  const RankTensors ones(2, Tensors{constant_rows({1, -1, 1, 1, -1})});
  EXPECT_EQ(rig.step(ones)[0], constant_rows({1, -1, 0, 0, 0}));
  EXPECT_EQ(rig.step(ones)[0], constant_rows({0, 0, 2, 2, 0}));
  EXPECT_EQ(rig.step(ones)[0], constant_rows({2, 0, 0, 0, -3})) << "the lengths are 2, 2, 1, 1, 3";
}

TEST(ArcTopK, ManyColumnsFindTheRowsThatAreReallyTheLongest) {
  std::vector<float> matrix = heavy_tailed(12 * 200, 7);
  for (uint64_t e = 0; e < matrix.size(); ++e) matrix[e] *= e / 200 % 6 == 5 ? 16.0f : 1.0f;
  CompressorRig rig({.ranks = 1}, {{12, 200}}, arctopk(), {{"rank", 64}, {"density", 0.16}});
  std::vector<float> expected = matrix;
  for (uint64_t e = 0; e < matrix.size(); ++e)
    if (e / 200 % 6 != 5) expected[e] = 0;
  for (int step = 0; step < 20; ++step)
    EXPECT_EQ(rig.step(RankTensors(1, Tensors{matrix}))[0], expected);
}

TEST(ArcTopK, EveryStepDrawsAnotherProjection) {
  // Two rows of one length and of different directions: either may be the longer one.
  std::vector<float> matrix(2 * 40, 0.0f);
  matrix[3] = matrix[40 + 17] = 1;
  CompressorRig rig({.ranks = 3}, {{2, 40}}, arctopk(), {{"rank", 2}});
  std::set<std::vector<float>> seen;
  for (int step = 0; step < 40; ++step) seen.insert(rig.step(RankTensors(3, Tensors{matrix}))[0]);
  EXPECT_EQ(seen.size(), 2u);
}

TEST(ArcTopK, CodesWhatItMakesSmallerAndSendsTheRestWholeInOneRound) {
  CompressorRig rig({.ranks = 2}, kShapes, arctopk(), {{"density", 0.15}, {"rank", 3}});
  for (uint64_t i = 0; i < kShapes.size(); ++i) {
    const PlannedNeed& need = rig.need(i);
    ASSERT_EQ(need.rounds.size(), i < kCoded ? 2u : 1u) << "item " << i;
    EXPECT_EQ(need.states.size(), i < kCoded ? 1u : 0u);
    EXPECT_EQ(need.flags, i < kCoded ? 0u : PENSTOCK_NEED_LOSSLESS | PENSTOCK_NEED_LINEAR);
    for (const PlannedRound& round : need.rounds)
      EXPECT_EQ(round.c.combine, uint32_t{PENSTOCK_COMBINE_SUM});
  }
  EXPECT_EQ(rig.need(0).rounds[0].sections[0].capacity, 20u * 3);
  EXPECT_EQ(rig.need(0).rounds[1].sections[0].capacity, 3u * 33);
  EXPECT_NE(rig.need(0).rounds[0].c.flags & PENSTOCK_ROUND_SAME_BITS, 0u);
}

TEST(ArcTopK, AtDensityOneItIsTheDenseMeanToTheBit) {
  for (const uint32_t ranks : {1u, 2u, 3u, 4u}) {
    CompressorRig all({.ranks = ranks}, kShapes, arctopk(), {{"density", 1}}, residual());
    CompressorRig dense({.ranks = ranks}, kShapes, load_plugin("compressor", "none"));
    for (uint64_t step = 0; step < 3; ++step) {
      const RankTensors gradients = draw_gradients(heavy_tailed, ranks, kNumels, step);
      EXPECT_EQ(all.step(gradients), dense.step(gradients)) << ranks;
    }
  }
}

TEST(ArcTopK, VectorsAndSmallMatricesAreTakenOutWhole) {
  low_rank::expect_dense_is_taken_out(arctopk());
}

TEST(ArcTopK, WithoutAnyDataTheNormsStay) {
  CompressorRig rig({.ranks = 2}, {{20, 33}}, arctopk());
  rig.step(draw_gradients(heavy_tailed, 2, {660}, 0));
  const std::vector<float> norms = rig.compressor_state(0, 0, "norms");
  const Tensors mean = rig.step(draw_gradients(heavy_tailed, 2, {660}, 1), {.joined = {0, 1}});
  EXPECT_EQ(mean[0], std::vector<float>(660, 0.0f));
  EXPECT_EQ(rig.compressor_state(0, 0, "norms"), norms);
}

TEST(ArcTopK, ProjectionsThatOverflowStillChooseTheSameOnAllRanks) {
  CompressorRig rig({.ranks = 3}, {{20, 33}}, arctopk(), {}, residual());
  // Sums of products are infinite or no numbers; the rows, whose sums are finite, are sent.
  std::vector<float> huge(660, 1e38f);
  for (uint64_t e = 0; e < huge.size(); e += 2) huge[e] = -1e38f;
  for (int step = 0; step < 3; ++step) {
    const Tensors mean = rig.step(RankTensors(3, Tensors{huge}));
    for (const float value : mean[0]) ASSERT_FALSE(std::isnan(value));
  }
}

TEST(ArcTopK, SumsAreInputAndOwnPayloadsChangeNoState) {
  CompressorRig rig({.ranks = 2}, {{20, 33}, {20, 33}}, arctopk());
  rig.step(draw_gradients(heavy_tailed, 2, {660, 660}, 0));
  const std::vector<float> norms = rig.compressor_state(0, 0, "norms");
  const std::vector<const penstock_item*> items{rig.compressor_item(0, 0),
                                                rig.compressor_item(0, 1)};
  const PayloadPointer good = dense_payload(std::vector<float>(80, 1.0f), -1);
  const PayloadPointer short_one = dense_payload(std::vector<float>(79, 1.0f), -1);
  low_rank::expect_sum_refused(rig, items, {good->c(), short_one->c()}, "gradient1");
  EXPECT_EQ(rig.compressor_state(0, 0, "norms"), norms) << "half of a refused call took effect";
  const penstock_step step = rig.step_facts(0);
  const penstock_exec exec = rig.exec();
  const penstock_payload* payloads[] = {good->c(), good->c()};
  const auto decode = [&](uint32_t round, uint32_t flags) {
    const auto& compressor = rig.compressor(0);
    return compressor.table().decode(compressor.self(), &exec, &step, round, items.data(), 2,
                                     payloads, 1,
                                     PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST | flags);
  };
  EXPECT_TRUE(fails_with(decode(1, 0), PENSTOCK_INVALID_PAYLOAD, "gradient0"));
  PENSTOCK_EXPECT_OK(decode(0, PENSTOCK_DECODE_OWN));
  EXPECT_EQ(rig.compressor_state(0, 0, "norms"), norms);
  PENSTOCK_EXPECT_OK(decode(0, 0));
  EXPECT_EQ(rig.compressor_state(0, 0, "norms"), std::vector<float>(20, 2.0f)) << "rows of four 1";
}

TEST(ArcTopK, MoreRowsThanIndicesCanNumberAreRefused) {
  const LoadedPlugin plugin = arctopk();
  const CompressorInstance instance(plugin.compressor(), *plugin.module);
  penstock_item item{};
  item.struct_size = sizeof item;
  item.name = {"huge", 4};
  item.n_dims = 2;
  item.rows = uint64_t{1} << 32;
  item.cols = 16;
  item.numel = item.rows * item.cols;
  penstock_compressor_need need{};
  need.struct_size = sizeof need;
  const penstock_item* items[] = {&item};
  penstock_compressor_need* needs[] = {&need};
  EXPECT_TRUE(fails_with(instance.table().plan(instance.self(), 0, 2, items, 1, needs),
                         PENSTOCK_INVALID_ARGUMENT, "'huge' has 4294967296 rows"));
}

TEST(ArcTopK, CompensatingInTheSameSweepChangesNoBit) {
  expect_folding_changes_no_bit(arctopk(), {{"rank", 3}}, {{37, 20}, {30}, {64, 64}});
}

TEST(ArcTopK, CodePathsAndThreadsDoNotShow) {
  expect_one_result_wherever_it_runs(arctopk(), {{"rank", 3}}, {{517, 1103}, {9, 7}, {30}});
}

TEST(ArcTopK, SendsWholeRowsOfEachRanksMatrix) {
  for (const uint32_t ranks : {1u, 3u})
    expect_contraction({.plugin = arctopk(),
                        .options = {{"rank", 3}},
                        .shapes = {{20, 33}, {40, 3, 3}, {2, 9}, {17}},
                        .share = no_share,
                        .ranks = ranks,
                        .projects = true});
}

}  // namespace
}  // namespace penstock::test
