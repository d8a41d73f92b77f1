// AdaQ against plain loops with full sorts: the number of sent entries of each sign, the sent
// values, and the entries that stay.
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

// One gradient of one rank: the rule of both signs.
struct Oracle {
  SteeredOracle of_sign[2];

  std::vector<float> sent(const std::vector<float>& x) {
    std::vector<float> dense(x.size());
    for (int sign = 0; sign < 2; ++sign) send_sign(sign, x, dense);
    return dense;
  }

  void send_sign(int sign, const std::vector<float>& x, std::vector<float>& dense) {
    // Only the entries of this sign, close together, because the share counts these entries.
    std::vector<float> magnitudes;
    std::vector<uint32_t> places;
    for (uint32_t i = 0; i < x.size(); ++i)
      if (sign == 0 ? x[i] > 0 : x[i] < 0) {
        magnitudes.push_back(std::fabs(x[i]));
        places.push_back(i);
      }
    const std::vector<uint32_t> chosen = of_sign[sign].choose(
        magnitudes, [](SteeredOracle& oracle, const std::vector<float>&) { return oracle.last; },
        [](SteeredOracle&, float) {});
    double sum = 0;
    for (const uint32_t j : chosen) sum += double{x[places[j]]};
    const auto mean = static_cast<float>(sum / static_cast<double>(chosen.size()));
    for (const uint32_t j : chosen) dense[places[j]] = mean;
  }
};

SentOracle means(double density) {
  const auto oracles = std::make_shared<std::map<std::pair<uint64_t, uint32_t>, Oracle>>();
  return [=](const std::vector<float>& x, const Sender& sender) {
    Oracle& oracle = (*oracles)[{sender.item, sender.rank}];
    if (sender.step == 0) oracle = {{{.density = density}, {.density = density}}};
    return oracle.sent(x);
  };
}

Comparison comparison(double density, const std::vector<uint64_t>& numels, uint64_t steps,
                      uint32_t ranks) {
  return {.plugin = plugin(),
          .options = {{"density", density}},
          .shapes = vectors(numels),
          .rig = {.ranks = ranks, .check_mass = true, .mass_tolerance = 0x1p-23},
          .steps = steps};
}

TEST(AdaQ, EqualsTheOracleOver100Steps) {
  for (const Distribution& distribution : distributions())
    for (const uint32_t ranks : {1, 3})
      expect_equals(comparison(0.05, {300, 0, 1, 57}, 100, ranks), means(0.05), distribution);
}

TEST(AdaQ, AwkwardSizesEqualTheOracle) {
  for (const Distribution& distribution : distributions())
    expect_equals(comparison(0.01, awkward_sizes(), 2, 1), means(0.01), distribution);
}

TEST(AdaQ, SixteenMillionElementsEqualTheOracle) {
  expect_large_gradients_equal({.plugin = plugin()}, means(0.01));
}

TEST(AdaQ, SendsTheMeanOfEachSignAndKeepsWhatIsBeyondIt) {
  CompressorRig rig({.ranks = 1, .check_mass = true}, {{8}}, plugin(), {{"density", 0.5}},
                    residual());
  EXPECT_EQ(rig.step({{{4, -8, 2, -1, 6, 0, 1, -4}}}), (Tensors{{5, -6, 0, 0, 5, 0, 0, -6}}));
  EXPECT_EQ(rig.work(0, 0), (std::vector<float>{-1, -2, 2, -1, 1, 0, 1, 2}));
}

TEST(AdaQ, KeepsTheShareOfEachSignWithinATenth) {
  for (const Distribution& distribution : distributions()) {
    if (distribution.name != "gauss" && distribution.name != "student_t") continue;
    CompressorRig rig({.ranks = 1}, {{20001}}, plugin(), {{"density", 0.01}}, residual());
    for (uint64_t step = 0; step < 12; ++step) {
      rig.step(draw_gradients(distribution.draw, 1, {20001}, step));
      uint64_t positive = 0, negative = 0;
      for (const float value : rig.sent(0, 0)) {
        positive += value > 0 ? 1 : 0;
        negative += value < 0 ? 1 : 0;
      }
      // Half of the entries have each sign, give or take four times sqrt(20001) / 2.
      EXPECT_NEAR(static_cast<double>(positive), 100, 10 + 4);
      EXPECT_NEAR(static_cast<double>(negative), 100, 10 + 4);
    }
  }
}

TEST(AdaQ, NothingIsLostOver100StepsOfEveryKind) {
  expect_nothing_is_lost(plugin(), {{"density", 0.05}}, false);
}

TEST(AdaQ, PayloadsAreInput) {
  CompressorRig rig({.ranks = 2}, {{16}}, plugin(), {{"density", 0.5}});
  OwnedPayload payload(rig.need(0).rounds[0].sections, 1);
  auto* indices = static_cast<uint32_t*>(payload.section(1).data);
  auto* means = static_cast<float*>(payload.section(2).data);
  const auto refused = [&] { return refuses(rig, payload, "rank 1 for gradient 'gradient0'"); };
  payload.c()->kind = PENSTOCK_PAYLOAD_CODED;
  payload.section(0).count = 0;
  payload.section(1).count = 1;
  payload.section(2).count = 2;
  means[0] = 1;
  means[1] = -2;
  indices[0] = 3;
  EXPECT_TRUE(decode_once(rig, payload).ok());
  EXPECT_EQ(static_cast<const float*>(rig.compressor_item(0, 0)->out.data)[3], -2);
  indices[0] = 16;
  EXPECT_TRUE(refused()) << "an index out of range";
  payload.section(1).count = 2;
  for (const uint32_t second : {3, 2}) {
    indices[0] = 3;
    indices[1] = second;
    EXPECT_TRUE(refused()) << "index " << second << " behind 3";
  }
  payload.section(1).count = 1;
  for (const float mean : {INFINITY, NAN}) {
    means[1] = mean;
    EXPECT_TRUE(refused()) << "a mean of " << mean;
  }
  means[1] = -2;
  payload.section(2).count = 1;
  EXPECT_TRUE(refused()) << "one mean";
  payload.section(2).count = 2;
  payload.section(0).count = UINT64_MAX;
  EXPECT_TRUE(refused()) << "a count above the capacity";
  payload.section(0).count = 0;
  payload.c()->kind = PENSTOCK_PAYLOAD_SPARSE;
  EXPECT_TRUE(refused()) << "another kind";
}

}  // namespace
}  // namespace penstock::test
