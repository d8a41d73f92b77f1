// Threshold binary quantisation against plain loops, and payloads that no Penstock rank would send.
#include <support/coded.hpp>
#include <support/conservation.hpp>

#include <cmath>

namespace penstock::test {
namespace {

LoadedPlugin tbq() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin residual() {
  return load_plugin("memory", "residual");
}

float sent(float x, float threshold) {
  if (x >= threshold) return threshold;
  return x <= -threshold ? -threshold : 0.0f;
}

SentOracle sent_at(float threshold) {
  return each_element([threshold](float x) { return sent(x, threshold); });
}

TEST(Tbq, EqualsTheOracleOnEveryDistributionAndSize) {
  for (const Distribution& distribution : distributions())
    expect_equals({.plugin = tbq(),
                   .options = {{"threshold", 0.3}},
                   .shapes = awkward_vectors(),
                   .rig = {.ranks = 3, .ranks_per_slice = 2},
                   .steps = 3},
                  sent_at(0.3f), distribution);
}

TEST(Tbq, SixteenMillionElementsEqualTheOracle) {
  expect_large_gradients_equal({.plugin = tbq(), .options = {{"threshold", 0.3}}}, sent_at(0.3f));
}

TEST(Tbq, NothingIsLostOver100StepsOfEveryKind) {
  for (const Distribution& distribution : distributions())
    for (const uint32_t ranks : {1u, 2u, 3u, 4u}) {
      CompressorRig rig({.ranks = ranks, .check_mass = true, .mass_tolerance = 2e-7},
                        {{10, 13}, {31}, {0}}, tbq(), {{"threshold", 0.5}}, residual());
      expect_conservation(rig, distribution);
    }
}

TEST(Tbq, TheThresholdItselfIsSentAndTheTailToo) {
  CompressorRig rig({.ranks = 1}, {{7}}, tbq(), {{"threshold", 0.5}}, residual());
  const Tensors result = rig.step({{{0.5f, -0.5f, 0.4999f, 0, 3, -3, -0.6f}}});
  EXPECT_EQ(result[0], (std::vector<float>{0.5f, -0.5f, 0, 0, 0.5f, -0.5f, -0.5f}));
  EXPECT_EQ(rig.work(0, 0), (std::vector<float>{0, 0, 0.4999f, 0, 2.5f, -2.5f, -0.6f + 0.5f}));
}

// If there is no memory, work is the scaled gradient: the elements that pass and the sent values
// must not change.
TEST(Tbq, LossScalingDoesNotMoveTheThreshold) {
  const std::vector<float> x{0.6f, 0.4f, -1, 0};
  for (const bool kept : {false, true}) {
    CompressorRig rig({.ranks = 2}, {{4}}, tbq(), {{"threshold", 0.5}},
                      kept ? std::optional(residual()) : std::nullopt);
    StepSettings settings;
    settings.grad_scale = 1024;
    EXPECT_EQ(rig.step({{x}, {x}}, settings)[0], (std::vector<float>{0.5f, 0, -0.5f, 0}));
  }
}

TEST(Tbq, SendsTwoBitsForEachElement) {
  CompressorRig rig({.ranks = 1}, {{1001}}, tbq());
  EXPECT_EQ(rig.need(0).rounds[0].c.combine, uint32_t{PENSTOCK_COMBINE_GATHER});
  EXPECT_EQ(rig.need(0).rounds[0].sections[0].capacity, 32u);
  EXPECT_EQ(rig.need(0).rounds[0].sections[1].capacity, 1u);
  std::vector<float> x(1001);
  x[0] = 1;
  x[33] = -1;
  const PayloadPointer payload = encode_once(rig, x);
  EXPECT_EQ(entry<uint64_t>(*payload, 0, 0), 1u);
  EXPECT_EQ(entry<uint64_t>(*payload, 0, 1), 2u << 2);
}

TEST(Tbq, EveryCodePathSendsTheSame) {
  expect_one_result_wherever_it_runs(tbq(), {});
}

TEST(Tbq, PayloadsThatCannotBeAreRefusedByRankAndGradient) {
  CompressorRig rig({.ranks = 1}, {{100}}, tbq());
  const std::vector<float> x = distributions()[0].draw(100, 1);
  const auto refused = [&](const std::function<void(OwnedPayload&)>& change, const char* why) {
    expect_refused(rig, x, change, why);
  };
  refused([](OwnedPayload& p) { p.section(0).count = 3; }, "expected 4");
  refused([](OwnedPayload& p) { p.section(0).count = UINT64_MAX; }, "at most 4");
  refused([](OwnedPayload& p) { p.section(1).count = 0; }, "expected 1");
  refused([](OwnedPayload& p) { entry<uint64_t>(p, 0, 0) |= 3; }, "in word 0");
  refused([](OwnedPayload& p) { entry<uint64_t>(p, 0, 1) |= uint64_t{3} << 62; }, "in word 1");
  refused([](OwnedPayload& p) { entry<uint64_t>(p, 0, 3) |= 3u << 6; }, "in word 3");
  refused([](OwnedPayload& p) { entry<float>(p, 1, 0) = NAN; }, "threshold");
  refused([](OwnedPayload& p) { entry<float>(p, 1, 0) = INFINITY; }, "threshold");
  refused([](OwnedPayload& p) { entry<float>(p, 1, 0) = 0; }, "threshold 0");
  // The bits behind the last element have no meaning.
  const PayloadPointer payload = encode_once(rig, x);
  entry<uint64_t>(*payload, 0, 3) |= uint64_t{3} << 8;
  EXPECT_TRUE(decode_once(rig, *payload).ok());
}

}  // namespace
}  // namespace penstock::test
