// Max-min quantisation against plain loops, its bounds, and payloads that no Penstock rank would
// send.
#include <support/coded.hpp>
#include <support/conservation.hpp>

#include <cmath>
#include <limits>

namespace penstock::test {
namespace {

const float kMost = std::numeric_limits<float>::max();

LoadedPlugin maxmin() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin residual() {
  return load_plugin("memory", "residual");
}

// The value that is sent for each element. For rounding to nearest the draws are one half.
struct Coder {
  int bits = 4;
  uint64_t block = 512;
  bool stochastic = true;

  OptionSettings options() const {
    return {{"bits", bits},
            {"block", static_cast<int>(block)},
            {"rounding", stochastic ? "stochastic" : "nearest"}};
  }
  std::vector<float> operator()(const std::vector<float>& x, const Sender& sender) const {
    const DrawnBy by = rounding_words(sender);
    std::vector<float> result(x.size());
    const auto top = static_cast<float>((1 << bits) - 1);
    for (uint64_t begin = 0; begin < x.size(); begin += block) {
      const uint64_t end = std::min<uint64_t>(begin + block, x.size());
      float low = x[begin], high = x[begin];
      for (uint64_t i = begin; i < end; ++i) {
        low = std::min(low, x[i]);
        high = std::max(high, x[i]);
      }
      const float step = (high - low) / top;
      for (uint64_t i = begin; i < end; ++i) {
        const float at = step > 0 ? std::min((x[i] - low) / step, top) : 0;
        const float draw = stochastic ? drawn_uniform(by, i) : 0.5f;
        const float level = std::floor(at) + (draw < at - std::floor(at) ? 1.0f : 0.0f);
        result[i] = low + level * step;
      }
    }
    return result;
  }
};

Comparison comparison(const Coder& coder, uint32_t ranks, const std::vector<uint64_t>& numels,
                      uint64_t steps) {
  return {.plugin = maxmin(),
          .options = coder.options(),
          .shapes = vectors(numels),
          .rig = {.ranks = ranks, .seed = 9, .ranks_per_slice = 2},
          .steps = steps};
}

TEST(MaxMin, EqualsTheOracleOnEveryDistribution) {
  for (const Distribution& distribution : distributions())
    for (const bool stochastic : {true, false})
      for (const int bits : {1, 4, 7}) {
        const Coder coder{bits, 128, stochastic};
        expect_equals(comparison(coder, 3, {0, 1, 2, 3, 31, 64, 1000}, 3), coder, distribution);
      }
}

TEST(MaxMin, LargeGradientsAndEveryWidthEqualTheOracle) {
  for (int bits = 1; bits <= 8; ++bits) {
    const Coder coder{bits, 4096, true};
    expect_equals(comparison(coder, 2, {65537}, 2), coder, distributions()[0]);
  }
}

TEST(MaxMin, SixteenMillionElementsEqualTheOracle) {
  const Coder coder;
  expect_large_gradients_equal(comparison(coder, 1, {}, 1), coder);
}

TEST(MaxMin, NothingIsLostOver100StepsOfEveryKind) {
  for (const Distribution& distribution : distributions())
    for (const bool stochastic : {true, false})
      for (const uint32_t ranks : {1u, 2u, 4u}) {
        const Coder coder{4, 64, stochastic};
        CompressorRig rig({.ranks = ranks, .check_mass = true, .mass_tolerance = 2e-7},
                          {{10, 13}, {31}, {0}}, maxmin(), coder.options(), residual());
        expect_conservation(rig, distribution, 100, KeptSize::kByLargest);
      }
}

// The error of a stochastic choice between neighbours is at most a step and has a standard
// deviation of at most half a step, so a mean over n steps lies within 5 step / (2 sqrt(n)) except
// once in a million.
TEST(MaxMin, StochasticRoundingIsRightOnAverageAndWithinAStep) {
  const uint64_t n = 256, steps = 2000;
  const std::vector<float> x = distributions()[1].draw(n, 3);
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  for (const int bits : {1, 4}) {
    const double step = (*high - *low) / ((1 << bits) - 1);
    CompressorRig rig({.ranks = 1}, {{static_cast<int64_t>(n)}}, maxmin(), {{"bits", bits}});
    std::vector<double> sum(n);
    for (uint64_t s = 0; s < steps; ++s) {
      const Tensors result = rig.step({{x}});
      for (uint64_t e = 0; e < n; ++e) {
        ASSERT_LE(std::fabs(result[0][e] - x[e]), step * 1.000001);
        sum[e] += result[0][e];
      }
    }
    for (uint64_t e = 0; e < n; ++e)
      EXPECT_NEAR(sum[e] / static_cast<double>(steps), x[e],
                  5 * step / 2 / std::sqrt(static_cast<double>(steps)));
  }
}

TEST(MaxMin, NearestIsWithinHalfAStepAndRanksRoundOnTheirOwn) {
  const std::vector<float> x = distributions()[0].draw(512, 3);
  const auto [low, high] = std::minmax_element(x.begin(), x.end());
  CompressorRig nearest({.ranks = 1}, {{512}}, maxmin(), {{"rounding", "nearest"}});
  const Tensors result = nearest.step({{x}});
  for (uint64_t e = 0; e < x.size(); ++e)
    EXPECT_LE(std::fabs(result[0][e] - x[e]), (*high - *low) / 15 / 2 * 1.000001f);
  CompressorRig rig({.ranks = 2}, {{512}}, maxmin());
  rig.step({{x}, {x}});
  EXPECT_NE(rig.sent(0, 0), rig.sent(1, 0));
}

TEST(MaxMin, ConstantBlocksAndTheEndsOfTheRangeAreExact) {
  CompressorRig rig({.ranks = 1}, {{100}}, maxmin(), {{"bits", 1}, {"block", 64}});
  std::vector<float> x(100, -0.75f);
  for (uint64_t e = 64; e < 100; ++e) x[e] = e % 3 == 0 ? 4.0f : -2.0f;
  EXPECT_EQ(rig.step({{x}})[0], x);
  EXPECT_EQ(rig.step({{std::vector<float>(100)}})[0], std::vector<float>(100));
}

TEST(MaxMin, TheLargestAndSmallestFloatsStayFinite) {
  for (const int bits : {1, 2, 3, 4, 5, 6, 7, 8})
    for (const auto& [low, high] : std::vector<std::pair<float, float>>{{-kMost, kMost},
                                                                        {0, kMost},
                                                                        {0x1p127f, kMost},
                                                                        {-kMost, 0},
                                                                        {0, 1e-45f},
                                                                        {-1e-40f, 1e-40f}}) {
      CompressorRig rig({.ranks = 1}, {{64}}, maxmin(), {{"bits", bits}});
      std::vector<float> x(64, low);
      x[7] = high;
      const Tensors result = rig.step({{x}});
      for (const float value : result[0]) EXPECT_TRUE(std::isfinite(value)) << low << " " << high;
      EXPECT_EQ(result[0][0], low);
    }
}

TEST(MaxMin, SendsTheBitsAndTwoNumbersForEachBlock) {
  CompressorRig rig({.ranks = 1}, {{1025}}, maxmin(), {{"bits", 3}});
  const PlannedRound& round = rig.need(0).rounds[0];
  EXPECT_EQ(round.c.combine, uint32_t{PENSTOCK_COMBINE_GATHER});
  EXPECT_EQ(round.sections[0].capacity, (1025u * 3 + 63) / 64);
  EXPECT_EQ(round.sections[1].capacity, 6u);
  EXPECT_EQ(rig.need(0).part_alignment, 512u);
}

// A gradient that is cut between blocks travels with equal bits.
TEST(MaxMin, PartsOfAGradientGiveTheSameBits) {
  const std::vector<float> x = distributions()[0].draw(1500, 4);
  CompressorRig whole({.ranks = 1}, {{1500}}, maxmin());
  CompressorRig part({.ranks = 1}, {{988}}, maxmin());
  part.compressor_item(0, 0)->first = 512;
  const PayloadPointer all = encode_once(whole, x);
  const PayloadPointer tail = encode_once(part, {x.begin() + 512, x.end()});
  for (uint64_t w = 0; w < tail->section(0).count; ++w)
    ASSERT_EQ(entry<uint64_t>(*tail, 0, w), entry<uint64_t>(*all, 0, w + 512 * 4 / 64));
}

TEST(MaxMin, EveryCodePathSendsTheSame) {
  expect_one_result_wherever_it_runs(maxmin(), {{"bits", 5}});
}

TEST(MaxMin, PayloadsThatCannotBeAreRefusedByRankAndGradient) {
  CompressorRig rig({.ranks = 1}, {{600}}, maxmin());
  const std::vector<float> x = distributions()[0].draw(600, 1);
  const auto refused = [&](const std::function<void(OwnedPayload&)>& change, const char* why) {
    expect_refused(rig, x, change, why);
  };
  refused([](OwnedPayload& p) { p.section(0).count = 37; }, "expected 38");
  refused([](OwnedPayload& p) { p.section(0).count = UINT64_MAX; }, "at most 38");
  refused([](OwnedPayload& p) { p.section(1).count = 2; }, "expected 4");
  refused([](OwnedPayload& p) { entry<float>(p, 1, 0) = NAN; }, "block 0");
  refused([](OwnedPayload& p) { entry<float>(p, 1, 3) = INFINITY; }, "block 1");
  refused([](OwnedPayload& p) { entry<float>(p, 1, 1) = -1; }, "negative step");
  refused([](OwnedPayload& p) { entry<float>(p, 1, 1) = kMost; }, "finite");
}

TEST(MaxMin, BlocksAreMultiplesOf64) {
  EXPECT_THROW(CompressorRig({.ranks = 1}, {{1}}, maxmin(), {{"block", 100}}), std::runtime_error);
}

}  // namespace
}  // namespace penstock::test
