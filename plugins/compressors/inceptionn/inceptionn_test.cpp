// Size classes against plain loops, the bound on the error, and payloads that no Penstock rank
// would send.
#include <support/coded.hpp>
#include <support/conservation.hpp>

#include <cmath>
#include <limits>

namespace penstock::test {
namespace {

LoadedPlugin inceptionn() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin residual() {
  return load_plugin("memory", "residual");
}

// Computed in doubles, in which these values are exact.
float sent(float x, int bound_bits) {
  const double y = std::fabs(double{x});
  const int middle = bound_bits / 2;
  double cut = 0;
  if (y >= 1)
    cut = y;
  else if (y >= std::pow(2, -middle))
    cut = std::floor(y * 32768) / 32768;
  else if (y >= std::pow(2, -bound_bits))
    cut = std::floor(y * std::pow(2, middle + 7)) / std::pow(2, middle + 7);
  return static_cast<float>(x < 0 ? -cut : cut);
}

SentOracle cut_at(int bound_bits) {
  return each_element([bound_bits](float x) { return sent(x, bound_bits); });
}

TEST(Inceptionn, EqualsTheOracleOnEveryDistributionAndSize) {
  for (const Distribution& distribution : distributions())
    for (const int bits : {1, 10})
      expect_equals({.plugin = inceptionn(),
                     .options = {{"bound_bits", bits}},
                     .shapes = awkward_vectors(),
                     .rig = {.ranks = 2, .ranks_per_slice = 1},
                     .steps = 2},
                    cut_at(bits), distribution);
}

TEST(Inceptionn, SixteenMillionElementsEqualTheOracle) {
  expect_large_gradients_equal({.plugin = inceptionn()}, cut_at(10));
}

TEST(Inceptionn, NothingIsLostOver100StepsOfEveryKind) {
  for (const Distribution& distribution : distributions())
    for (const uint32_t ranks : {1u, 2u, 3u, 4u}) {
      CompressorRig rig({.ranks = ranks, .check_mass = true, .mass_tolerance = 0},
                        {{10, 13}, {31}, {0}}, inceptionn(), {}, residual());
      expect_conservation(rig, distribution);
    }
}

// The bound is absolute, sent values are never larger than the element, and large elements are
// exact.
TEST(Inceptionn, ErrorsStayBelowTheBoundForEveryBound) {
  for (int bits = 1; bits <= 14; ++bits) {
    CompressorRig rig({.ranks = 1}, {{20000}}, inceptionn(), {{"bound_bits", bits}});
    std::vector<float> x = heavy_tailed(20000, 5);
    for (uint64_t e = 0; e < x.size(); ++e) x[e] *= e % 2 == 0 ? 0.01f : 1.0f;
    const Tensors result = rig.step({{x}});
    for (uint64_t e = 0; e < x.size(); ++e) {
      ASSERT_LT(std::fabs(double{x[e]} - result[0][e]), std::pow(2, -bits)) << x[e];
      ASSERT_LE(std::fabs(result[0][e]), std::fabs(x[e]));
      if (std::fabs(x[e]) >= 1) {
        ASSERT_EQ(result[0][e], x[e]);
      }
    }
  }
}

TEST(Inceptionn, ClassesBeginWhereTheyShould) {
  const float most = std::numeric_limits<float>::max();
  const std::vector<float> x{1,        -1,        std::nextafter(1.0f, 0.0f),     0x1p-5f,
                             0x1p-10f, -0x1p-10f, std::nextafter(0x1p-10f, 0.0f), most};
  CompressorRig rig({.ranks = 1}, {{8}}, inceptionn());
  const PayloadPointer payload = encode_once(rig, x);
  // tags by element: 3 3 2 2 1 1 0 3, the first in the lowest bits
  EXPECT_EQ(entry<uint64_t>(*payload, 0, 0), 0b1100010110101111u);
  EXPECT_EQ(payload->section(1).count, 3u * 4 + 2 * 2 + 2);
  EXPECT_EQ(entry<uint8_t>(*payload, 1, 12), 0xff);  // 32767 of 32768, and its sign
  EXPECT_EQ(entry<uint8_t>(*payload, 1, 13), 0x7f);
  EXPECT_EQ(entry<uint8_t>(*payload, 1, 16), 4);  // 2^-10 in steps of 2^-12
  EXPECT_EQ(entry<uint8_t>(*payload, 1, 17), 0x84);
}

TEST(Inceptionn, LossScalingDoesNotMoveTheBound) {
  const std::vector<float> x{0.6f, 0.0005f, -1.5f, 0.01f};
  for (const bool kept : {false, true}) {
    CompressorRig rig({.ranks = 2}, {{4}}, inceptionn(), {},
                      kept ? std::optional(residual()) : std::nullopt);
    StepSettings settings;
    settings.grad_scale = 1024;
    const Tensors result = rig.step({{x}, {x}}, settings);
    for (uint64_t e = 0; e < x.size(); ++e) EXPECT_EQ(result[0][e], sent(x[e], 10)) << kept;
  }
}

TEST(Inceptionn, EveryCodePathSendsTheSame) {
  expect_one_result_wherever_it_runs(inceptionn(), {});
}

TEST(Inceptionn, PayloadsThatCannotBeAreRefusedByRankAndGradient) {
  CompressorRig rig({.ranks = 1}, {{100}}, inceptionn());
  std::vector<float> x = distributions()[0].draw(100, 1);
  x[0] = 2;
  const auto refused = [&](const std::function<void(OwnedPayload&)>& change, const char* why) {
    expect_refused(rig, x, change, why);
  };
  refused([](OwnedPayload& p) { p.section(0).count = 3; }, "expected 4");
  refused([](OwnedPayload& p) { p.section(0).count = UINT64_MAX; }, "at most 4");
  refused([](OwnedPayload& p) { p.section(1).count -= 1; }, "bytes of elements");
  refused([](OwnedPayload& p) { p.section(1).count = 401; }, "at most 400");
  refused([](OwnedPayload& p) { entry<uint64_t>(p, 0, 0) ^= 1; }, "bytes of elements");
  refused([](OwnedPayload& p) { entry<float>(p, 1, 0) = NAN; }, "element 0");
  refused([](OwnedPayload& p) { p.section(2).count = 0; }, "expected 1");
  refused([](OwnedPayload& p) { entry<float>(p, 2, 0) = NAN; }, "unit");
  refused([](OwnedPayload& p) { entry<float>(p, 2, 0) = -1; }, "unit -1");
}

}  // namespace
}  // namespace penstock::test
