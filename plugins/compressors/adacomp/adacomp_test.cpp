// AdaComp against plain loops: the entries that stand out in their bin, the values that are sent
// for them, and the words on the wire.
#include <support/coded.hpp>
#include <support/steered_oracle.hpp>

namespace penstock::test {
namespace {

LoadedPlugin plugin() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin residual() {
  return load_plugin("memory", "residual");
}

// One step of one rank: G = e + g, H = G + g; in each bin the entries with |H| >= max |G| are sent,
// as sign(G) * mean of the bins' maxima.
void oracle_step(const std::vector<float>& g, uint64_t bin, uint64_t most, std::vector<float>& work,
                 std::vector<float>& total) {
  const size_t n = g.size();
  double maxima = 0;
  uint64_t bins = 0;
  std::vector<float> candidates(n);
  uint64_t passed = 0;
  for (size_t i = 0; i < n; ++i) work[i] += g[i];
  for (size_t begin = 0; begin < n; begin += bin, ++bins) {
    float largest = 0;
    for (size_t i = begin; i < std::min(n, begin + bin); ++i)
      largest = std::max(largest, std::fabs(work[i]));
    maxima += double{largest};
    for (size_t i = begin; i < std::min(n, begin + bin); ++i)
      if (work[i] != 0 && std::fabs(work[i] + g[i]) >= largest) {
        candidates[i] = work[i];
        ++passed;
      }
  }
  const auto scale = static_cast<float>(bins == 0 ? 0 : maxima / static_cast<double>(bins));
  for (const uint32_t i : largest(candidates, std::min(passed, most))) {
    const float sent = work[i] < 0 ? -scale : scale;
    total[i] += sent;
    work[i] -= sent;
  }
}

void expect_equals_oracle(int bin, double capacity, const std::vector<uint64_t>& numels,
                          uint64_t steps, const Distribution& distribution, uint32_t ranks) {
  std::vector<Shape> shapes;
  for (const uint64_t numel : numels) shapes.push_back({static_cast<int64_t>(numel)});
  CompressorRig rig({.ranks = ranks, .check_mass = true, .mass_tolerance = 0x1p-23}, shapes,
                    plugin(), {{"bin_length", bin}, {"capacity", capacity}}, residual());
  RankTensors kept(ranks);
  for (auto& of_rank : kept)
    for (const uint64_t numel : numels) of_rank.emplace_back(numel);
  for (uint64_t step = 0; step < steps; ++step) {
    const RankTensors gradients = draw_gradients(distribution.draw, ranks, numels, step);
    Tensors expected;
    for (uint64_t i = 0; i < numels.size(); ++i) {
      std::vector<float>& total = expected.emplace_back(numels[i]);
      const uint64_t most = numels[i] == 0 ? 0 : kept_of(numels[i], capacity);
      for (uint32_t r = 0; r < ranks; ++r)
        oracle_step(gradients[r][i], static_cast<uint64_t>(bin), most, kept[r][i], total);
      for (float& value : total) value /= static_cast<float>(ranks);
    }
    const double scale = distribution.name == "subnormal" || step % 2 == 0 ? 1 : 4096;
    ASSERT_EQ(rig.step(gradients, {.grad_scale = scale}), expected)
        << distribution.name << ", step " << step << ", bins of " << bin;
    for (uint32_t r = 0; r < ranks; ++r)
      for (uint64_t i = 0; i < numels.size(); ++i) ASSERT_EQ(rig.work(r, i), kept[r][i]);
  }
}

TEST(AdaComp, EqualsTheOracleOver100Steps) {
  for (const Distribution& distribution : distributions())
    for (const int bin : {50, 63, 64, 1})
      expect_equals_oracle(bin, 1, {300, 0, 1, 57}, 100, distribution, 2);
}

TEST(AdaComp, BeyondTheCapacityTheLargestGo) {
  for (const Distribution& distribution : distributions())
    expect_equals_oracle(20, 0.05, {300, 3}, 50, distribution, 4);
}

TEST(AdaComp, AwkwardSizesEqualTheOracle) {
  for (const Distribution& distribution : distributions())
    for (const int bin : {50, 500})
      expect_equals_oracle(bin, 0.1, awkward_sizes(), 2, distribution, 1);
}

TEST(AdaComp, SixteenMillionElementsEqualTheOracle) {
  // In the first step the rank has only the gradient.
  const auto first = [](const std::vector<float>& gradient, const Sender&) {
    std::vector<float> work(gradient.size()), sent(gradient.size());
    oracle_step(gradient, 50, kept_of(gradient.size(), 1), work, sent);
    return sent;
  };
  expect_large_gradients_equal({.plugin = plugin()}, first);
}

TEST(AdaComp, WordsAreAsDocumented) {
  CompressorRig rig({.ranks = 1, .check_mass = true, .mass_tolerance = 0x1p-23}, {{10}}, plugin(),
                    {{"bin_length", 4}}, residual());
  // Bins (4, -8, 1, 5), (0, 0, 0, 0), (2, -1); H = 2 G. Scale (8 + 0 + 2) / 3.
  rig.step({{{4, -8, 1, 5, 0, 0, 0, 0, 2, -1}}});
  EXPECT_EQ(rig.sent_count(0, 0), 6u) << "three entries, an empty bin, two entries";
  const std::vector<float>& sent = rig.sent(0, 0);
  const float scale = 10.0f / 3.0f;
  EXPECT_EQ(sent, (std::vector<float>{scale, -scale, 0, scale, 0, 0, 0, 0, scale, -scale}));
  EXPECT_EQ(rig.need(0).rounds[0].sections[0].dtype, uint32_t{PENSTOCK_UINT8});
  CompressorRig wide({.ranks = 1}, {{10}}, plugin(), {{"bin_length", 64}}, residual());
  EXPECT_EQ(wide.need(0).rounds[0].sections[0].dtype, uint32_t{PENSTOCK_UINT16});
}

TEST(AdaComp, WithoutAMemoryTheGradientStandsForBoth) {
  CompressorRig rig({.ranks = 1}, {{4}}, plugin(), {{"bin_length", 4}});
  for (const double scale : {1.0, 256.0})
    EXPECT_EQ(rig.step({{{4, -8, 1, 3}}}, {.grad_scale = scale}), (Tensors{{8, -8, 0, 0}}));
}

TEST(AdaComp, NothingIsLostOver100StepsOfEveryKind) {
  expect_nothing_is_lost(plugin(), {}, false);
  expect_nothing_is_lost(plugin(), {{"bin_length", 500}, {"capacity", 0.01}}, false);
}

TEST(AdaComp, PayloadsAreInput) {
  CompressorRig rig({.ranks = 2}, {{16}}, plugin(), {{"bin_length", 6}});
  OwnedPayload payload(rig.need(0).rounds[0].sections, 1);
  float* scale = static_cast<float*>(payload.section(1).data);
  const auto set = [&](const std::vector<uint8_t>& words) {
    std::copy(words.begin(), words.end(), static_cast<uint8_t*>(payload.section(0).data));
    payload.section(0).count = words.size();
  };
  const auto refused = [&](const std::vector<uint8_t>& words) {
    set(words);
    return refuses(rig, payload, "rank 1 for gradient 'gradient0'");
  };
  payload.c()->kind = PENSTOCK_PAYLOAD_CODED;
  payload.section(1).count = 1;
  *scale = 2;
  constexpr uint8_t kLast = 128, kNegative = 64, kEmpty = 63;
  const std::vector<uint8_t> good{1, 5 | kNegative | kLast, kEmpty | kLast, 3 | kLast};
  set(good);
  EXPECT_TRUE(decode_once(rig, payload).ok());
  const auto* out = static_cast<const float*>(rig.compressor_item(0, 0)->out.data);
  EXPECT_EQ(std::vector<float>(out, out + 16),
            (std::vector<float>{0, 2, 0, 0, 0, -2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}));
  EXPECT_TRUE(refused({})) << "no bins";
  EXPECT_TRUE(refused({1 | kLast, kEmpty | kLast})) << "a bin too few";
  EXPECT_TRUE(refused({1 | kLast, 1 | kLast, 1 | kLast, 1 | kLast})) << "a bin too many";
  EXPECT_TRUE(refused({6 | kLast, 1 | kLast, 1 | kLast})) << "beyond its bin";
  EXPECT_TRUE(refused({1 | kLast, 1 | kLast, 4 | kLast})) << "beyond the item";
  EXPECT_TRUE(refused({2, 2 | kLast, 1 | kLast, 1 | kLast})) << "twice the same";
  EXPECT_TRUE(refused({1 | kLast, 1 | kLast, 1})) << "the last bin does not end";
  EXPECT_TRUE(refused({1, kEmpty | kLast, 1 | kLast, 1 | kLast})) << "empty, with an entry";
  EXPECT_TRUE(refused({kEmpty, 1 | kLast, 1 | kLast})) << "empty, without an end";
  EXPECT_TRUE(refused({kEmpty | kNegative | kLast, 1 | kLast, 1 | kLast})) << "empty with a sign";
  for (const float wrong : {INFINITY, NAN}) {
    *scale = wrong;
    EXPECT_TRUE(refused(good)) << "scale " << wrong;
  }
  *scale = 2;
  payload.c()->kind = PENSTOCK_PAYLOAD_DENSE;
  EXPECT_TRUE(refused(good)) << "another kind";
  payload.c()->kind = PENSTOCK_PAYLOAD_CODED;
  payload.section(1).count = 0;
  EXPECT_TRUE(refused(good)) << "no scale";
}

}  // namespace
}  // namespace penstock::test
