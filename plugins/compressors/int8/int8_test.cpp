// The codebook against its definition, codes against a full search, and payloads that no Penstock
// rank would send.
#include <support/coded.hpp>
#include <support/conservation.hpp>

#include <cmath>
#include <limits>

namespace penstock::test {
namespace {

LoadedPlugin int8() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin residual() {
  return load_plugin("memory", "residual");
}

// By decades: the middles of 2^d equal cells of [0.1, 1) times 10^(d - 6), both signs, 0 and 1.
std::vector<float> codebook() {
  std::vector<float> values{0, 1};
  for (int d = 0; d < 7; ++d)
    for (int j = 0; j < (1 << d); ++j) {
      const double middle = 0.1 + 0.9 * (j + 0.5) / (1 << d);
      const auto value = static_cast<float>(std::pow(10.0, d - 6) * middle);
      values.push_back(value);
      values.push_back(-value);
    }
  std::sort(values.begin(), values.end());
  return values;
}

// The nearest value to x / scale times scale; if two are equally near, the smaller value.
std::vector<float> sent(const std::vector<float>& x, uint64_t block) {
  static const std::vector<float> values = codebook();
  std::vector<float> result(x.size());
  const uint64_t size = block == 0 ? x.size() : block;
  for (uint64_t begin = 0; begin < x.size(); begin += size) {
    const uint64_t end = std::min<uint64_t>(begin + size, x.size());
    float scale = 0;
    for (uint64_t i = begin; i < end; ++i) scale = std::max(scale, std::fabs(x[i]));
    for (uint64_t i = begin; i < end && scale > 0; ++i) {
      const double ratio = x[i] / scale;
      const auto above = std::lower_bound(values.begin(), values.end(), static_cast<float>(ratio));
      float best = above == values.end() ? values.back() : *above;
      if (above != values.begin()) {
        const float below = *(above - 1);
        const double to_below = ratio - below, to_above = best - ratio;
        if (to_below < to_above || (to_below == to_above && std::fabs(below) < std::fabs(best)))
          best = below;
      }
      result[i] = best * scale;
    }
  }
  return result;
}

TEST(Int8, CodesStandForTheDynamicTree) {
  const std::vector<float> values = codebook();
  ASSERT_EQ(values.size(), 256u);
  CompressorRig rig({.ranks = 1}, {{256}}, int8(), {{"block", 0}});
  const PayloadPointer payload = encode_once(rig, values);
  EXPECT_EQ(entry<float>(*payload, 1, 0), 1.0f);
  for (uint64_t code = 0; code < 256; ++code)
    ASSERT_EQ(entry<uint8_t>(*payload, 0, code), code) << "value " << values[code];
}

SentOracle codes_of(uint64_t block) {
  return [block](const std::vector<float>& x, const Sender&) { return sent(x, block); };
}

TEST(Int8, EqualsTheOracleOnEveryDistributionAndSize) {
  for (const Distribution& distribution : distributions())
    for (const int block : {0, 50})
      expect_equals({.plugin = int8(),
                     .options = {{"block", block}},
                     .shapes = awkward_vectors(),
                     .rig = {.ranks = 2, .ranks_per_slice = 1},
                     .steps = 2},
                    codes_of(static_cast<uint64_t>(block)), distribution);
}

TEST(Int8, SixteenMillionElementsEqualTheOracle) {
  expect_large_gradients_equal({.plugin = int8()}, codes_of(2048));
}

TEST(Int8, NothingIsLostOver100StepsOfEveryKind) {
  for (const Distribution& distribution : distributions())
    for (const uint32_t ranks : {1u, 2u, 3u, 4u}) {
      CompressorRig rig({.ranks = ranks, .check_mass = true, .mass_tolerance = 2e-7},
                        {{10, 13}, {31}, {0}}, int8(), {{"block", 64}}, residual());
      expect_conservation(rig, distribution, 100, KeptSize::kByLargest);
    }
}

// The upper decade has cells of 0.9 / 64; a tenth of the largest magnitude and more is hit within
// half of that. Zero is in the codebook, so no element is ever made worse than by dropping it.
TEST(Int8, ErrorsAreWithinHalfACellAndTheWholeContracts) {
  const std::vector<float> x = distributions()[1].draw(4096, 3);
  CompressorRig rig({.ranks = 1}, {{4096}}, int8(), {{"block", 0}});
  const Tensors result = rig.step({{x}});
  double scale = 0, error = 0, size = 0;
  for (const float value : x) scale = std::max(scale, std::fabs(double{value}));
  for (uint64_t e = 0; e < x.size(); ++e) {
    const double distance = std::fabs(double{result[0][e]} - x[e]);
    EXPECT_LE(distance, std::fabs(double{x[e]}));
    if (std::fabs(x[e]) >= 0.1 * scale) {
      EXPECT_LE(distance, 0.45 / 64 * 1.00001 * scale);
    }
    error += distance * distance;
    size += std::pow(double{x[e]}, 2);
  }
  EXPECT_LT(error, 1e-3 * size);
}

TEST(Int8, ZerosStayZeroAndExtremesStayFinite) {
  const float most = std::numeric_limits<float>::max();
  CompressorRig rig({.ranks = 1}, {{4}}, int8());
  EXPECT_EQ(rig.step({{{0, -0.0f, 0, 0}}})[0], std::vector<float>(4));
  const Tensors result = rig.step({{{most, -most, 0, 1}}});
  EXPECT_EQ(result[0][0], most);
  EXPECT_LT(result[0][1], -0.99f * most);
  EXPECT_TRUE(std::isfinite(result[0][1]));
  EXPECT_EQ(rig.step({{{1e-45f, 0, 0, -1e-45f}}})[0][0], 1e-45f);
}

TEST(Int8, EveryCodePathSendsTheSame) {
  expect_one_result_wherever_it_runs(int8(), {});
}

TEST(Int8, SendsAByteForEachElementAndAScaleForEachBlock) {
  CompressorRig rig({.ranks = 1}, {{5000}}, int8());
  EXPECT_EQ(rig.need(0).rounds[0].sections[0].capacity, 5000u);
  EXPECT_EQ(rig.need(0).rounds[0].sections[1].capacity, 3u);
  EXPECT_EQ(rig.need(0).part_alignment, 2048u);
  CompressorRig whole({.ranks = 1}, {{5000}}, int8(), {{"block", 0}});
  EXPECT_EQ(whole.need(0).rounds[0].sections[1].capacity, 1u);
  EXPECT_EQ(whole.need(0).part_alignment, 0u);
}

TEST(Int8, PayloadsThatCannotBeAreRefusedByRankAndGradient) {
  CompressorRig rig({.ranks = 1}, {{3000}}, int8());
  const std::vector<float> x = distributions()[0].draw(3000, 1);
  const auto refused = [&](const std::function<void(OwnedPayload&)>& change, const char* why) {
    expect_refused(rig, x, change, why);
  };
  refused([](OwnedPayload& p) { p.section(0).count = 2999; }, "expected 3000");
  refused([](OwnedPayload& p) { p.section(0).count = UINT64_MAX; }, "at most 3000");
  refused([](OwnedPayload& p) { p.section(1).count = 1; }, "expected 2");
  refused([](OwnedPayload& p) { entry<float>(p, 1, 0) = NAN; }, "block 0");
  refused([](OwnedPayload& p) { entry<float>(p, 1, 1) = INFINITY; }, "block 1");
  refused([](OwnedPayload& p) { entry<float>(p, 1, 1) = -1; }, "scale -1");
}

}  // namespace
}  // namespace penstock::test
