// TernGrad against its definition, its expectation, and payloads that no Penstock rank would send.
#include <cfloat>
#include <support/quantised.hpp>

namespace penstock::test {
namespace {

LoadedPlugin terngrad() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}

// min(max |x|, clip * root of the mean square); in double and in another order than the plugin's:
// see efsign_test.cpp.
float scale_of(const std::vector<float>& x, double clip) {
  double squares = 0, largest = 0;
  for (const float value : x) {
    squares += double{value} * value;
    largest = std::max(largest, std::fabs(double{value}));
  }
  if (clip == 0 || x.empty()) return static_cast<float>(largest);
  return static_cast<float>(
      std::min(largest, clip * std::sqrt(squares / static_cast<double>(x.size()))));
}

SentOracle signs_of(double clip) {
  return [=](const std::vector<float>& x, const Sender& sender) {
    const DrawnBy by = rounding_words(sender);
    const float scale = scale_of(x, clip);
    std::vector<float> sent(x.size());
    const float boost = scale < 0x1p-96f ? 0x1p96f : 1.0f;
    for (uint64_t e = 0; scale > 0 && e < x.size(); ++e) {
      const float share = std::fabs(x[e]) * boost * (16777216.0f / (scale * boost));
      if (std::min(share, 16777216.0f) >= static_cast<float>(drawn_word(by, e) / 256 + 1))
        sent[e] = x[e] < 0 ? -scale : scale;
    }
    return sent;
  };
}

TEST(TernGrad, EqualsTheDefinition) {
  expect_equals_oracle(terngrad(), {}, signs_of(2.5));
  expect_equals_oracle(terngrad(), {{"clip", 0.0}}, signs_of(0));
}

TEST(TernGrad, SixteenMillionElementsEqualTheOracle) {
  expect_large_gradients_equal({.plugin = terngrad()}, signs_of(2.5));
}

// One draw of an element has a deviation of sqrt(|x| (scale - |x|)), at most half the scale.
TEST(TernGrad, TheExpectationIsTheInputWithoutClipping) {
  const std::vector<float> x = heavy_tailed(300, 8);
  const double scale = scale_of(x, 0);
  expect_unbiased(terngrad(), {{"clip", 0.0}}, x, 6000, [&](uint64_t) { return scale / 2; });
}

TEST(TernGrad, TheExpectationIsTheClippedInput) {
  const std::vector<float> x = heavy_tailed(300, 8);
  const float scale = scale_of(x, 2.5);
  std::vector<double> sum(x.size());
  CompressorRig rig({.ranks = 1}, {{300}}, terngrad());
  for (int step = 0; step < 4000; ++step) {
    rig.step({{x}});
    for (uint64_t e = 0; e < x.size(); ++e) sum[e] += double{rig.sent(0, 0)[e]};
  }
  bool clipped = false;
  for (uint64_t e = 0; e < x.size(); ++e) {
    clipped = clipped || std::fabs(x[e]) > scale;
    // 5.5 deviations of the mean of 4000 draws of at most half a scale each.
    ASSERT_NEAR(sum[e] / 4000, double{std::clamp(x[e], -scale, scale)},
                5.5 * scale / 2 / std::sqrt(4000.0));
  }
  EXPECT_TRUE(clipped);
}

TEST(TernGrad, EqualElementsAreNotClippedAway) {
  for (const int64_t n : {1, 2, 100}) {
    CompressorRig rig({.ranks = 1}, {{n}}, terngrad());
    const std::vector<float> x(static_cast<uint64_t>(n), -0.375f);
    EXPECT_EQ(rig.step({{x}})[0], x);
  }
}

TEST(TernGrad, NothingIsLostOver100StepsOfEveryKind) {
  expect_conserves(terngrad(), {});
}

TEST(TernGrad, EveryCodePathSendsAndKeepsTheSame) {
  expect_one_result_wherever_it_runs(terngrad(), {});
}

TEST(TernGrad, HugeAndTinyGradientsStayFinite) {
  for (const float size : {FLT_MAX, FLT_TRUE_MIN}) {
    CompressorRig rig({.ranks = 1}, {{130}}, terngrad(), {}, load_plugin("memory", "residual"));
    std::vector<float> x(130, size);
    x[3] = 0;
    rig.step({{x}});
    for (uint64_t e = 0; e < 130; ++e) {
      ASSERT_TRUE(std::isfinite(rig.sent(0, 0)[e]));
      ASSERT_TRUE(std::isfinite(rig.work(0, 0)[e]));
    }
    EXPECT_EQ(rig.sent(0, 0)[3], 0.0f);
  }
}

TEST(TernGrad, PayloadsThatCannotBeAreRefusedByRankAndGradient) {
  CompressorRig rig({.ranks = 1}, {{640}}, terngrad());
  const std::vector<float> x = heavy_tailed(640, 1);
  const auto refused = [&](const std::function<void(OwnedPayload&)>& change, const char* why) {
    expect_refused(rig, x, change, why);
  };
  refused([](OwnedPayload& p) { p.section(0).count = 9; }, "expected 10");
  refused([](OwnedPayload& p) { p.section(1).count = 11; }, "at most 10");
  refused([](OwnedPayload& p) { p.section(2).count = 0; }, "expected 1");
  for (const float scale : {-1.0f, INFINITY, NAN})
    refused([&](OwnedPayload& p) { entry<float>(p, 2, 0) = scale; }, "scale");
  expect_any_bytes_are_survived(rig);
}

}  // namespace
}  // namespace penstock::test
