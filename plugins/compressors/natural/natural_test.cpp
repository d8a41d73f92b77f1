// Natural compression against its definition, its expectation and variance, and payloads that no
// Penstock rank would send.
#include <cfloat>
#include <support/quantised.hpp>

namespace penstock::test {
namespace {

LoadedPlugin natural() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}

// The power of two next to |x| that 23 random bits choose, with the sign of x; zero below the
// smallest of the 127 powers that the largest of its 1024 elements leaves.
std::vector<float> powers(const std::vector<float>& x, const Sender& sender) {
  const DrawnBy by = rounding_words(sender);
  std::vector<float> sent(x.size());
  for (uint64_t begin = 0; begin < x.size(); begin += 1024) {
    const uint64_t end = std::min<uint64_t>(begin + 1024, x.size());
    float largest = 0;
    for (uint64_t e = begin; e < end; ++e) largest = std::max(largest, std::fabs(x[e]));
    const int top = largest < FLT_MIN ? -126 : std::min(std::ilogb(largest) + 1, 127);
    const int lowest = std::max(top - 126, -126);
    for (uint64_t e = begin; e < end; ++e) {
      const double magnitude = std::fabs(double{x[e]});
      const int below = magnitude < FLT_MIN ? -127 : std::ilogb(magnitude);
      const double low = below == -127 ? 0 : std::ldexp(1.0, below);
      const double gap = std::ldexp(1.0, std::max(below, -126));
      // up with probability (magnitude - low) / gap, a multiple of 2^-23
      const double carry = (magnitude - low) / gap * 8388608 + drawn_word(by, e) / 512;
      const double power = std::min(carry >= 8388608 ? low + gap : low, std::ldexp(1.0, 127));
      if (power >= std::ldexp(1.0, lowest)) sent[e] = static_cast<float>(x[e] < 0 ? -power : power);
    }
  }
  return sent;
}

TEST(Natural, EqualsTheDefinition) {
  expect_equals_oracle(natural(), {}, powers);
}

TEST(Natural, SixteenMillionElementsEqualTheOracle) {
  expect_large_gradients_equal({.plugin = natural()}, powers);
}

// One draw has a deviation of at most half the distance of the two powers, half the element.
TEST(Natural, TheExpectationIsTheInput) {
  const std::vector<float> x = heavy_tailed(1500, 8);
  expect_unbiased(natural(), {}, x, 1500, [&](uint64_t e) { return std::fabs(double{x[e]}) / 2; });
}

// Theorem 1 of the paper: E|C(x) - x|^2 <= |x|^2 / 8.
TEST(Natural, TheVarianceIsAtMostAnEighth) {
  const std::vector<float> x = heavy_tailed(3000, 4);
  CompressorRig rig({.ranks = 1}, {{3000}}, natural());
  double error = 0, squares = 0;
  for (int step = 0; step < 50; ++step) {
    rig.step({{x}});
    for (uint64_t e = 0; e < x.size(); ++e) {
      error += std::pow(double{rig.sent(0, 0)[e]} - x[e], 2);
      squares += std::pow(double{x[e]}, 2);
    }
  }
  EXPECT_LE(error, squares / 8);
}

TEST(Natural, PowersOfTwoAndZerosTravelAsTheyAre) {
  std::vector<float> x;
  for (int e = -60; e <= 60; ++e) {
    x.push_back(std::ldexp(1.0f, e));
    x.push_back(-std::ldexp(1.0f, e));
    x.push_back(0);
  }
  CompressorRig rig({.ranks = 1}, {{static_cast<int64_t>(x.size())}}, natural());
  for (int step = 0; step < 10; ++step) EXPECT_EQ(rig.step({{x}})[0], x);
}

TEST(Natural, NothingIsLostOver100StepsOfEveryKind) {
  expect_conserves(natural(), {});
}

TEST(Natural, EveryCodePathSendsAndKeepsTheSame) {
  expect_one_result_wherever_it_runs(natural(), {});
}

TEST(Natural, HugeElementsStayFinite) {
  CompressorRig rig({.ranks = 1}, {{100}}, natural(), {}, load_plugin("memory", "residual"));
  rig.step({{std::vector<float>(100, FLT_MAX)}});
  for (uint64_t e = 0; e < 100; ++e) {
    ASSERT_EQ(rig.sent(0, 0)[e], 0x1p127f);
    ASSERT_EQ(rig.work(0, 0)[e], FLT_MAX - 0x1p127f);
  }
}

TEST(Natural, PayloadsThatCannotBeAreRefusedByRankAndGradient) {
  CompressorRig rig({.ranks = 1}, {{2000}}, natural());
  const std::vector<float> x = heavy_tailed(2000, 1);
  const auto refused = [&](const std::function<void(OwnedPayload&)>& change, const char* why) {
    expect_refused(rig, x, change, why);
  };
  refused([](OwnedPayload& p) { p.section(0).count = 1999; }, "expected 2000");
  refused([](OwnedPayload& p) { p.section(1).count = 1; }, "expected 2");
  refused([](OwnedPayload& p) { entry<uint8_t>(p, 1, 1) = 128; }, "base 128 in bucket 1");
  expect_any_bytes_are_survived(rig);
}

}  // namespace
}  // namespace penstock::test
