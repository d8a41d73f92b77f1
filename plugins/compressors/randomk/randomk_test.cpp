// Random-k against plain loops over the positions that its README defines, and the properties that
// its theory rests on: every entry equally likely, unbiased, a contraction.
#include <support/coded.hpp>
#include <support/conservation.hpp>
#include <support/half.hpp>
#include <support/sparse_oracle.hpp>
#include <support/summed_cases.hpp>

#include <cmath>
#include <set>

namespace penstock::test {
namespace {

const std::vector<Shape> kShapes{{10, 16}, {0}, {1}, {31}, {7, 3, 3}};
const std::vector<uint64_t> kNumels{160, 0, 1, 31, 63};

LoadedPlugin randomk() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin residual() {
  return load_plugin("memory", "residual");
}

// Element `element` of stream 5, from which stratum `element` draws; equal for all ranks.
uint64_t drawn_below(uint64_t bound, uint64_t gradient, uint64_t step, uint64_t element) {
  return drawn_word({1, gradient, stream_in_step(5, step), 0}, element) * bound >> 32;
}

std::vector<uint32_t> positions(uint64_t n, uint64_t k, uint64_t gradient, uint64_t step) {
  std::vector<uint32_t> chosen;
  if (n == 0) return chosen;
  const uint64_t start = drawn_below(n, gradient, step, k);
  uint64_t begins = 0;
  for (uint64_t j = 0; j < k; ++j) {
    const uint64_t size = n / k + (j < n % k ? 1 : 0);
    const uint64_t place = start + begins + drawn_below(size, gradient, step, j);
    chosen.push_back(static_cast<uint32_t>(place % n));
    begins += size;
  }
  return chosen;
}

// The sent values of x = e + g with a residual, as float32.
SentOracle drawn_entries(double density) {
  return [density](const std::vector<float>& x, const Sender& sender) {
    const uint64_t k = kept_of(x.size(), density);
    return only(x, positions(x.size(), k, sender.item, sender.step));
  };
}

// x = e + g, or g; the drawn entries of x are sent, rounded, and their sum is rounded; e = the
// rest.
struct Oracle {
  SummedType type;
  double density;
  bool keeps;
  RankTensors kept;

  Tensors step(const RankTensors& gradients, uint64_t index) {
    const size_t ranks = gradients.size();
    Tensors mean;
    if (kept.empty()) {
      kept = gradients;
      for (auto& of_rank : kept)
        for (auto& of_item : of_rank) of_item.assign(of_item.size(), 0.0f);
    }
    for (size_t i = 0; i < gradients[0].size(); ++i) {
      const uint64_t n = gradients[0][i].size(), k = kept_of(n, density);
      std::vector<float>& total = mean.emplace_back(n, 0.0f);
      const float scale = keeps ? 1.0f : static_cast<float>(double(n) / double(std::max(k, 1ul)));
      for (size_t r = 0; r < ranks; ++r)
        for (size_t e = 0; e < n; ++e)
          kept[r][i][e] = (keeps ? kept[r][i][e] : 0.0f) + gradients[r][i][e];
      for (const uint32_t e : positions(n, k, i, index)) {
        for (size_t r = 0; r < ranks; ++r) {
          const float sent = type.sent(kept[r][i][e], static_cast<uint32_t>(ranks));
          kept[r][i][e] -= sent;
          total[e] += sent;
        }
        total[e] = type.rounded(total[e]) * scale / static_cast<float>(ranks);
      }
    }
    return mean;
  }
};

TEST(RandomK, EqualsTheOracleOver100StepsWithAResidual) {
  for (const Distribution& distribution : distributions())
    for (const uint32_t ranks : {1u, 2u, 3u, 4u, 8u}) {
      if (ranks != 3 && distribution.name != "student_t") continue;
      expect_equals({.plugin = randomk(),
                     .options = {{"density", 0.05}},
                     .shapes = kShapes,
                     .rig = {.ranks = ranks, .check_mass = true},
                     .steps = ranks == 3 ? 100u : 5u},
                    drawn_entries(0.05), distribution);
    }
}

TEST(RandomK, SixteenMillionElementsEqualTheOracle) {
  expect_large_gradients_equal({.plugin = randomk()}, drawn_entries(0.01));
}

TEST(RandomK, AwkwardSizesAndNarrowValuesEqualTheOracle) {
  for (const SummedType& type : summed_types())
    for (const AwkwardInput& input : awkward_inputs())
      for (const bool keeps : {false, true})
        for (const double density : {0.01, 1.0}) {
          CompressorRig rig({.ranks = 3, .check_mass = true}, vectors(input.sizes), randomk(),
                            {{"density", density}, {"value_type", type.name}},
                            keeps ? std::optional(residual()) : std::nullopt);
          Oracle oracle{type, density, keeps, {}};
          for (uint64_t step = 0; step < 2; ++step) {
            const RankTensors gradients =
                draw_gradients(input.distribution.draw, 3, input.sizes, step);
            ASSERT_EQ(rig.step(gradients), oracle.step(gradients, step))
                << type.name << density << input.distribution.name;
            for (uint32_t r = 0; keeps && r < 3; ++r)
              for (uint64_t i = 0; i < input.sizes.size(); ++i)
                ASSERT_EQ(rig.work(r, i), oracle.kept[r][i])
                    << type.name << input.distribution.name;
          }
        }
}

TEST(RandomK, NothingIsLostOver100StepsOfEveryKind) {
  for (const char* type : {"fp32", "fp16", "bf16"})
    for (const Distribution& distribution : distributions()) {
      CompressorRig rig({.ranks = 3, .check_mass = true}, kShapes, randomk(),
                        {{"density", 0.1}, {"value_type", type}}, residual());
      expect_conservation(rig, distribution);
    }
}

TEST(RandomK, ValuesTooLargeForAHalfStayInTheResidual) {
  for (const uint32_t ranks : {1u, 2u, 3u, 5u, 8u}) {
    CompressorRig rig({.ranks = ranks, .check_mass = true}, {{2}}, randomk(),
                      {{"density", 1}, {"value_type", "fp16"}}, residual());
    const Tensors mean = rig.step(RankTensors(ranks, Tensors{{1e5f, -3.0f}}));
    EXPECT_TRUE(std::isfinite(mean[0][0]));
    EXPECT_GT(mean[0][0], 0.99f * 65504 / static_cast<float>(ranks));
    EXPECT_EQ(mean[0][1], -3.0f);
    EXPECT_EQ(rig.work(0, 0)[0], 1e5f - rig.sent(0, 0)[0]);
  }
}

// Over random starts every entry is chosen with probability k / n exactly; 20000 draws of a
// probability p scatter by sqrt(p (1 - p) / 20000), and five of that are never reached by 63
// entries.
TEST(RandomK, EveryEntryIsEquallyLikelyAndPositionsAreDistinct) {
  for (const auto& [n, density] : {std::pair{63, 0.1}, {31, 0.5}, {7, 0.9}, {64, 0.015}}) {
    CompressorRig rig({.ranks = 1}, {{n}}, randomk(), {{"density", density}, {"unbiased", false}});
    const RankTensors ones{{std::vector<float>(static_cast<size_t>(n), 1.0f)}};
    const auto k = static_cast<double>(rig.need(0).rounds[0].sections[0].capacity);
    std::vector<int> hits(static_cast<size_t>(n));
    const int draws = 20000;
    for (int step = 0; step < draws; ++step) {
      const std::vector<float> sent = rig.step(ones)[0];
      double distinct = 0;
      for (size_t e = 0; e < sent.size(); ++e) {
        hits[e] += sent[e] != 0;
        distinct += double{sent[e]};
      }
      ASSERT_EQ(distinct, k);
    }
    const double p = k / n, bound = 5 * std::sqrt(p * (1 - p) / draws);
    for (const int hit : hits) EXPECT_NEAR(double(hit) / draws, p, bound) << n;
  }
}

TEST(RandomK, WithoutAMemoryItIsUnbiasedOverSeeds) {
  const std::vector<uint64_t> numels{97};
  const RankTensors gradients = draw_gradients(heavy_tailed, 2, numels, 3);
  std::vector<double> mean(97), square(97);
  const int seeds = 4000;
  for (int seed = 0; seed < seeds; ++seed) {
    CompressorRig rig({.ranks = 2, .seed = static_cast<uint64_t>(seed)}, {{97}}, randomk(),
                      {{"density", 0.1}});
    const Tensors result = rig.step(gradients);
    for (size_t e = 0; e < 97; ++e) mean[e] += double{result[0][e]} / seeds;
  }
  for (size_t e = 0; e < 97; ++e) {
    const double x = (double{gradients[0][0][e]} + gradients[1][0][e]) / 2;
    // An entry is x n / k with probability k / n: its deviation is |x| sqrt(n / k - 1).
    EXPECT_NEAR(mean[e], x, 5 * std::fabs(x) * std::sqrt((9.7 - 1) / seeds)) << e;
  }
}

// Stich et al., lemma A.1: the mean of |x - C(x)|^2 is (1 - k / n) |x|^2.
TEST(RandomK, IsTheContractionOfThePaper) {
  CompressorRig rig({.ranks = 1}, {{90}}, randomk(), {{"density", 0.2}, {"unbiased", false}});
  const RankTensors gradients = draw_gradients(heavy_tailed, 1, {90}, 4);
  double all = 0, fourth = 0, left = 0;
  for (const float x : gradients[0][0]) {
    all += double{x} * x;
    fourth += std::pow(double{x}, 4);
  }
  const int steps = 4000;
  for (int step = 0; step < steps; ++step) {
    const Tensors sent = rig.step(gradients);
    for (size_t e = 0; e < 90; ++e)
      left += std::pow(double{gradients[0][0][e]} - double{sent[0][e]}, 2) / steps;
  }
  // Entries of different strata are nearly independent: variance p (1 - p) sum of x^4 at most.
  EXPECT_NEAR(left, 0.8 * all, 5 * std::sqrt(0.16 * fourth / steps));
}

TEST(RandomK, StepsGradientsAndSeedsDrawDifferently) {
  std::set<std::vector<float>> seen;
  const RankTensors ones{Tensors(2, std::vector<float>(1000, 1.0f))};
  for (const uint64_t seed : {1, 2}) {
    CompressorRig rig({.ranks = 1, .seed = seed}, {{1000}, {1000}}, randomk());
    for (int step = 0; step < 2; ++step)
      for (const std::vector<float>& sent : rig.step(ones)) seen.insert(sent);
  }
  EXPECT_EQ(seen.size(), 8u);
}

TEST(RandomK, PartsOfAGradientDrawTheWordsOfTheirElements) {
  const LoadedPlugin plugin = randomk();
  CompressorRig rig({.ranks = 1}, {{100}}, plugin, {{"density", 0.1}});
  penstock_item part = *rig.compressor_item(0, 0);
  const auto sent_of = [&](uint64_t first) {
    part.first = first;
    std::vector<float> work(100, 1.0f), out(100);
    part.work.data = work.data();
    part.out.data = out.data();
    const penstock_item* item = &part;
    OwnedPayload payload(rig.need(0).rounds[0].sections, -1);
    penstock_payload* pointer = payload.c();
    const penstock_payload* input = pointer;
    const penstock_step step = rig.step_facts(0);
    const penstock_exec exec = rig.exec();
    const auto& compressor = rig.compressor(0);
    PENSTOCK_EXPECT_OK(
        compressor.table().encode(compressor.self(), &exec, &step, 0, &item, 1, &pointer));
    PENSTOCK_EXPECT_OK(compressor.table().decode(compressor.self(), &exec, &step, 0, &item, 1,
                                                 &input, 1,
                                                 PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST));
    return out;
  };
  EXPECT_NE(sent_of(0), sent_of(100));
  EXPECT_EQ(sent_of(100), sent_of(100));
}

TEST(RandomK, SumsAreInput) {
  for (const char* type : {"fp32", "bf16"})
    expect_sums_are_input(randomk(), {{"density", 0.1}, {"value_type", type}}, 4);
}

TEST(RandomK, RefusesMoreEntriesThanIndicesCanName) {
  expect_huge_gradients_are_refused(randomk());
}

}  // namespace
}  // namespace penstock::test
