// EF-sign against the formula of the paper, the loss of one step, and payloads that no Penstock
// rank would send.
#include <support/quantised.hpp>

namespace penstock::test {
namespace {

LoadedPlugin efsign() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}

// |x|_1 / n * sign(x). The plugin adds magnitudes in double and in another order: 2^-53 per
// addition, so the nearest float can differ only if the mean lies at the middle between two floats;
// no value drawn here does.
std::vector<float> scaled_signs(const std::vector<float>& x, const Sender&) {
  double sum = 0;
  for (const float value : x) sum += std::fabs(double{value});
  const auto scale = static_cast<float>(x.empty() ? 0 : sum / static_cast<double>(x.size()));
  std::vector<float> sent(x.size());
  for (uint64_t e = 0; e < x.size(); ++e) sent[e] = x[e] > 0 ? scale : x[e] < 0 ? -scale : 0;
  return sent;
}

TEST(EfSign, SendsSignsTimesTheMeanMagnitude) {
  expect_equals_oracle(efsign(), {}, scaled_signs);
}

TEST(EfSign, NothingIsLostOver100StepsOfEveryKind) {
  expect_conserves(efsign(), {});
}

TEST(EfSign, EveryCodePathSendsAndKeepsTheSame) {
  expect_one_result_wherever_it_runs(efsign(), {});
}

// Lemma 8 of the paper: |x - C(x)|^2 = (1 - |x|_1^2 / (n |x|_2^2)) |x|^2, less where entries are 0.
TEST(EfSign, ContractsAsThePaperSays) {
  expect_the_contraction_of_one_scale(efsign());
}

TEST(EfSign, CompensatingInTheSameSweepChangesNoBit) {
  expect_folding_changes_no_bit(efsign(), {}, {{30, 40}, {0}, {1}, {70, 70}}, 2e-6);
}

TEST(EfSign, DeadParametersStayWhereTheyAre) {
  CompressorRig rig({.ranks = 2}, {{130}}, efsign(), {}, load_plugin("memory", "residual"));
  for (uint64_t step = 0; step < 20; ++step) {
    RankTensors gradients = draw_gradients(heavy_tailed, 2, {130}, step);
    for (auto& of_rank : gradients)
      for (const uint64_t dead : {0u, 64u, 129u}) of_rank[0][dead] = 0;
    const std::vector<float> mean = rig.step(gradients)[0];
    for (const uint64_t dead : {0u, 64u, 129u}) ASSERT_EQ(mean[dead], 0.0f);
  }
}

TEST(EfSign, RanksWithoutDataCountAsZeros) {
  CompressorRig rig({.ranks = 4}, {{200}}, efsign());
  const RankTensors gradients = draw_gradients(heavy_tailed, 4, {200}, 0);
  StepSettings settings;
  settings.joined = {0, 2};
  const std::vector<float> mean = rig.step(gradients, settings)[0];
  const std::vector<float> one = scaled_signs(gradients[1][0], {}),
                           three = scaled_signs(gradients[3][0], {});
  for (uint64_t e = 0; e < 200; ++e) EXPECT_EQ(mean[e], (one[e] + three[e]) / 4);
}

TEST(EfSign, SendsOneBitPerElementAndAScale) {
  CompressorRig rig({.ranks = 1}, {{1000}}, efsign());
  std::vector<float> values(1000, -2.0f);
  const PayloadPointer payload = encode_once(rig, values);
  EXPECT_EQ(payload->section(0).count, 16u);
  EXPECT_EQ(payload->section(1).count, 0u);
  EXPECT_EQ(payload->section(2).count, 0u);
  EXPECT_EQ(payload->section(3).count, 1u);
  EXPECT_EQ(entry<float>(*payload, 3, 0), 2.0f);
}

TEST(EfSign, SixteenMillionElementsEqualTheOracle) {
  expect_large_gradients_equal({.plugin = efsign()}, scaled_signs);
}

TEST(EfSign, PayloadsThatCannotBeAreRefusedByRankAndGradient) {
  CompressorRig rig({.ranks = 1}, {{640}}, efsign());
  const std::vector<float> x = heavy_tailed(640, 1);
  const auto refused = [&](const std::function<void(OwnedPayload&)>& change, const char* why) {
    expect_refused(rig, x, change, why);
  };
  refused([](OwnedPayload& p) { p.section(0).count = 9; }, "expected 10");
  refused([](OwnedPayload& p) { p.section(2).count = 5; }, "expected none or 10");
  refused([](OwnedPayload& p) { p.section(3).count = 0; }, "expected 1");
  for (const float scale : {-1.0f, INFINITY, NAN})
    refused([&](OwnedPayload& p) { entry<float>(p, 3, 0) = scale; }, "scale");
  expect_any_bytes_are_survived(rig);
}

}  // namespace
}  // namespace penstock::test
