// Chunked top-k against full sorts of summed norms in plain loops, and its behaviour at the edges.
#include <support/compressor_cases.hpp>
#include <support/conservation.hpp>
#include <support/contraction.hpp>
#include <support/half.hpp>
#include <support/sparse_oracle.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace penstock::test {
namespace {

const std::vector<Shape> kShapes{{10, 16}, {0}, {1}, {31}, {7, 3, 3}};
const std::vector<uint64_t> kNumels{160, 0, 1, 31, 63};

LoadedPlugin chunktopk() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin residual() {
  return load_plugin("memory", "residual");
}

// x = e + g; the chunks of the largest norms over all ranks are sent; e = the rest.
struct Oracle {
  SummedType type;
  uint64_t thousandths;
  uint64_t chunk;
  RankTensors kept;

  std::vector<uint64_t> chosen(size_t item) const {
    const size_t n = kept[0][item].size(), chunks = (n + chunk - 1) / chunk;
    std::vector<float> norms(chunks, 0.0f);
    for (const Tensors& of_rank : kept)
      for (size_t c = 0; c < chunks; ++c) {
        double norm = 0;
        for (size_t e = c * chunk; e < std::min(n, (c + 1) * chunk); ++e)
          norm += std::fabs(double{of_rank[item][e]});
        norms[c] += static_cast<float>(norm);
      }
    std::vector<uint64_t> order(chunks);
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint64_t a, uint64_t b) { return norms[a] > norms[b]; });
    order.resize(
        std::min<size_t>(chunks, std::max<size_t>(1, (chunks * thousandths + 999) / 1000)));
    return order;
  }

  Tensors step(const RankTensors& gradients) {
    if (kept.empty()) {
      kept = gradients;
      for (auto& of_rank : kept)
        for (auto& of_item : of_rank) of_item.assign(of_item.size(), 0.0f);
    }
    Tensors mean;
    for (size_t i = 0; i < kept[0].size(); ++i) {
      const size_t n = kept[0][i].size();
      for (size_t r = 0; r < kept.size(); ++r)
        for (size_t e = 0; e < n; ++e) kept[r][i][e] += gradients[r][i][e];
      std::vector<float>& total = mean.emplace_back(n, 0.0f);
      for (const uint64_t c : chosen(i))
        for (size_t e = c * chunk; e < std::min(n, (c + 1) * chunk); ++e) {
          for (auto& of_rank : kept) {
            const float sent = type.sent(of_rank[i][e], static_cast<uint32_t>(kept.size()));
            of_rank[i][e] -= sent;
            total[e] += sent;
          }
          total[e] = type.rounded(total[e]) / static_cast<float>(kept.size());
        }
    }
    return mean;
  }
};

TEST(ChunkTopK, EqualsTheOracleOver100Steps) {
  for (const Distribution& distribution : distributions())
    for (const uint32_t ranks : {1u, 2u, 3u, 4u, 8u}) {
      if (ranks != 3 && distribution.name != "student_t") continue;
      const uint64_t steps = ranks == 3 ? 100 : 5;
      CompressorRig rig({.ranks = ranks, .check_mass = true}, kShapes, chunktopk(),
                        {{"density", 0.15}, {"chunk", 7}}, residual());
      Oracle oracle{summed_types()[0], 150, 7, {}};
      for (uint64_t step = 0; step < steps; ++step) {
        const RankTensors gradients = draw_gradients(distribution.draw, ranks, kNumels, step);
        ASSERT_EQ(rig.step(gradients), oracle.step(gradients)) << distribution.name << step;
        for (uint32_t r = 0; r < ranks; ++r)
          for (uint64_t i : {0, 3, 4})  // the others are one chunk and keep nothing
            ASSERT_EQ(rig.work(r, i), oracle.kept[r][i]) << distribution.name;
      }
    }
}

TEST(ChunkTopK, AwkwardSizesChunksAndTypesEqualTheOracle) {
  for (const SummedType& type : summed_types())
    for (const AwkwardInput& input : awkward_inputs())
      for (const auto& [chunk, thousandths] : {std::pair{1, 300}, {256, 10}}) {
        CompressorRig rig({.ranks = 3, .check_mass = true}, vectors(input.sizes), chunktopk(),
                          {{"density", static_cast<double>(thousandths) / 1000},
                           {"chunk", chunk},
                           {"value_type", type.name}},
                          residual());
        Oracle oracle{type, static_cast<uint64_t>(thousandths), static_cast<uint64_t>(chunk), {}};
        for (uint64_t step = 0; step < 2; ++step) {
          const RankTensors gradients =
              draw_gradients(input.distribution.draw, 3, input.sizes, step);
          ASSERT_EQ(rig.step(gradients), oracle.step(gradients))
              << type.name << ", chunk " << chunk << ", " << input.distribution.name;
        }
      }
}

TEST(ChunkTopK, SixteenMillionElementsEqualTheOracle) {
  // One rank chooses by its own norms.
  const auto largest_chunks = [](const std::vector<float>& x, const Sender&) {
    const Oracle oracle{summed_types()[0], 10, 256, {{x}}};
    std::vector<float> sent(x.size());
    for (const uint64_t c : oracle.chosen(0))
      for (size_t e = c * 256; e < std::min(x.size(), size_t{(c + 1) * 256}); ++e) sent[e] = x[e];
    return sent;
  };
  expect_large_gradients_equal({.plugin = chunktopk()}, largest_chunks);
}

TEST(ChunkTopK, NothingIsLostOver100StepsOfEveryKind) {
  for (const char* type : {"fp32", "fp16", "bf16"})
    for (const Distribution& distribution : distributions()) {
      // Only gradients of more than one chunk, because a gradient that is sent whole is never given
      // back.
      CompressorRig rig({.ranks = 3, .check_mass = true}, {{10, 16}, {31}}, chunktopk(),
                        {{"density", 0.3}, {"chunk", 5}, {"value_type", type}}, residual());
      expect_conservation(rig, distribution);
    }
}

TEST(ChunkTopK, ChunksAreChosenByAllRanksTogether) {
  CompressorRig rig({.ranks = 2}, {{6}}, chunktopk(), {{"density", 0.3}, {"chunk", 2}});
  // Rank 0 alone would choose the first chunk, rank 1 the last one; together they choose the
  // middle.
  EXPECT_EQ(rig.step({{{5, 0, 2, -2, 0, 0}}, {{0, 0, 2, 2, 0, 5}}}), (Tensors{{0, 0, 2, 0, 0, 0}}));
}

TEST(ChunkTopK, EqualNormsKeepTheLowerChunkAndAShortOneIsFilledUp) {
  CompressorRig tied({.ranks = 2}, {{6}}, chunktopk(), {{"density", 0.3}, {"chunk", 2}});
  EXPECT_EQ(tied.step({{{1, 1, -2, 0, 2, 0}}, {{1, 1, 2, 0, 2, 0}}}),
            (Tensors{{1, 1, 0, 0, 0, 0}}));
  CompressorRig last({.ranks = 2, .check_mass = true}, {{7}}, chunktopk(),
                     {{"density", 0.3}, {"chunk", 3}}, residual());
  EXPECT_EQ(last.need(0).rounds[1].sections[0].capacity, 3u);
  EXPECT_EQ(last.step({{{1, 1, 1, 1, 1, 1, 9}}, {{1, 1, 1, 1, 1, 1, 7}}}),
            (Tensors{{0, 0, 0, 0, 0, 0, 8}}));
}

TEST(ChunkTopK, WhereAllIsWantedItGoesInOneRoundWithoutNorms) {
  CompressorRig rig({.ranks = 2}, {{9}, {100}, {0}}, chunktopk(), {{"chunk", 10}}, residual());
  EXPECT_EQ(rig.need(0).rounds.size(), 1u);
  EXPECT_EQ(rig.need(0).flags, PENSTOCK_NEED_LOSSLESS | PENSTOCK_NEED_LINEAR);
  EXPECT_EQ(rig.need(0).states.size(), 0u);
  ASSERT_EQ(rig.need(1).rounds.size(), 2u);
  EXPECT_EQ(rig.need(1).flags, 0u);
  EXPECT_EQ(rig.need(1).rounds[0].sections[0].capacity, 10u);
  EXPECT_EQ(rig.need(1).rounds[1].sections[0].capacity, 10u);
  EXPECT_NE(rig.need(1).rounds[0].c.flags & PENSTOCK_ROUND_SAME_BITS, 0u);
  for (const PlannedRound& round : rig.need(1).rounds)
    EXPECT_EQ(round.c.combine, uint32_t{PENSTOCK_COMBINE_SUM});
  CompressorRig all({.ranks = 3}, {{9}, {100}}, chunktopk(), {{"density", 1}, {"chunk", 10}});
  const RankTensors gradients = draw_gradients(heavy_tailed, 3, {9, 100}, 1);
  const Tensors mean = all.step(gradients);
  for (uint64_t e = 0; e < 100; ++e)
    ASSERT_EQ(mean[1][e], (gradients[0][1][e] + gradients[1][1][e] + gradients[2][1][e]) / 3);
}

TEST(ChunkTopK, WithoutAnyDataTheNormsStay) {
  CompressorRig rig({.ranks = 2}, {{40}}, chunktopk(), {{"chunk", 4}});
  rig.step(draw_gradients(heavy_tailed, 2, {40}, 0));
  const std::vector<float> norms = rig.compressor_state(0, 0, "norms");
  const Tensors mean = rig.step(draw_gradients(heavy_tailed, 2, {40}, 1), {.joined = {0, 1}});
  EXPECT_EQ(mean[0], std::vector<float>(40, 0.0f));
  EXPECT_EQ(rig.compressor_state(0, 0, "norms"), norms);
}

TEST(ChunkTopK, NormsThatOverflowStillChooseTheSameOnAllRanks) {
  CompressorRig rig({.ranks = 3}, {{40}}, chunktopk(), {{"chunk", 4}, {"density", 0.3}},
                    residual());
  const float huge = 3e38f;
  for (int step = 0; step < 3; ++step) rig.step(RankTensors(3, {std::vector<float>(40, huge)}));
  EXPECT_EQ(rig.sent(0, 0)[0], huge) << "all norms are infinite: the lower chunks go";
}

TEST(ChunkTopK, SumsAreInputAndOwnPayloadsChangeNoState) {
  CompressorRig rig({.ranks = 2}, {{40}, {40}}, chunktopk(), {{"chunk", 4}});
  rig.step(draw_gradients(heavy_tailed, 2, {40, 40}, 0));
  const std::vector<float> norms = rig.compressor_state(0, 0, "norms");
  const std::vector<const penstock_item*> items{rig.compressor_item(0, 0),
                                                rig.compressor_item(0, 1)};
  const PayloadPointer good = dense_payload(std::vector<float>(10, 1.0f), -1);
  const penstock_step step = rig.step_facts(0);
  const penstock_exec exec = rig.exec();
  const auto decode = [&](uint32_t round, OwnedPayload& second, uint32_t flags) {
    const penstock_payload* payloads[] = {good->c(), second.c()};
    const auto& compressor = rig.compressor(0);
    return compressor.table().decode(compressor.self(), &exec, &step, round, items.data(), 2,
                                     payloads, 1, flags);
  };
  const uint32_t all = PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST;
  EXPECT_TRUE(fails_with(decode(0, *dense_payload(std::vector<float>(9, 1.0f), -1), all),
                         PENSTOCK_INVALID_PAYLOAD, "gradient1"));
  EXPECT_EQ(rig.compressor_state(0, 0, "norms"), norms) << "half of a refused call took effect";
  EXPECT_TRUE(fails_with(decode(1, *good, all), PENSTOCK_INVALID_PAYLOAD, "gradient0"));
  PENSTOCK_EXPECT_OK(decode(0, *good, all | PENSTOCK_DECODE_OWN));
  EXPECT_EQ(rig.compressor_state(0, 0, "norms"), norms);
  PENSTOCK_EXPECT_OK(decode(0, *good, all));
  EXPECT_EQ(rig.compressor_state(0, 0, "norms"), std::vector<float>(10, 1.0f));
}

TEST(ChunkTopK, LeavesAtMostTheShareOfChunksThatWasNotChosenInTheNormThatChooses) {
  // Chunks are chosen by their L1 norms, so the share holds in L1: a spike in a chunk of zeros has
  // the greater square and may stay. With several ranks the share holds for the values of all ranks
  // together.
  constexpr double kDensity = 0.3;
  Contraction contraction{
      .plugin = chunktopk(),
      .options = {{"density", kDensity}, {"chunk", 5}},
      .shapes = {{10, 16}, {0}, {3}, {31}},
      .share =
          [](const CompressorRig& rig, uint32_t, uint64_t item) {
            const uint64_t chunks = (rig.numel(item) + 4) / 5;
            return chunks == 0 ? 0 : double(kept_of(chunks, kDensity)) / double(chunks);
          },
      .ranks = 1,
      .rounding = 1e-6,  // norms are sums in float, and nearly equal ones may change places
      .power = 1};
  expect_contraction(contraction);
  contraction.share = no_share;
  contraction.ranks = 3;
  contraction.power = 2;
  expect_contraction(contraction);
}

}  // namespace
}  // namespace penstock::test
