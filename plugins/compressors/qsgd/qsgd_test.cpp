// QSGD against its definition, its expectation and variance, and payloads that no Penstock rank
// would send.
#include <cfloat>
#include <support/quantised.hpp>

namespace penstock::test {
namespace {

LoadedPlugin qsgd() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}

// The step of a grid that covers `reach` with `levels` steps: the definition in stochastic.hpp.
float step_for(double reach, int levels) {
  if (reach == 0) return 0;
  auto step = std::max(static_cast<float>(reach / levels), FLT_TRUE_MIN);
  while (double{step} * levels < reach) step = std::nextafter(step, FLT_MAX);
  return step;
}

double reach_of(const float* x, uint64_t n, bool euclidean) {
  double squares = 0, largest = 0;
  for (uint64_t e = 0; e < n; ++e) {
    squares += double{x[e]} * x[e];
    largest = std::max(largest, std::fabs(double{x[e]}));
  }
  return euclidean ? std::sqrt(squares) : largest;
}

// |x| / step is rounded to the next multiple of 2^-16, and then up or down at random: up if adding
// the upper 16 bits of the word carries.
float rounded(float x, float step, int levels, uint32_t word) {
  if (step == 0) return 0;
  // Computed as a product with an inverse in float; both are scaled if the step has no inverse.
  const float boost = step < 0x1p-96f ? 0x1p96f : 1.0f;
  const float scaled = std::fabs(x) * boost * (65536.0f / (step * boost));
  const auto fixed = static_cast<int64_t>(scaled + 0.5f);
  const int64_t level = std::min<int64_t>((fixed + word / 65536) / 65536, levels);
  return static_cast<float>(x < 0 ? -level : level) * step;
}

SentOracle levels_of(int bits, uint64_t bucket, bool euclidean) {
  return [=](const std::vector<float>& x, const Sender& sender) {
    const DrawnBy by = rounding_words(sender);
    const int levels = (1 << (bits - 1)) - 1;
    std::vector<float> sent(x.size());
    for (uint64_t begin = 0; begin < x.size(); begin += bucket) {
      const uint64_t n = std::min<uint64_t>(bucket, x.size() - begin);
      const float step = step_for(reach_of(x.data() + begin, n, euclidean), levels);
      for (uint64_t e = begin; e < begin + n; ++e)
        sent[e] = rounded(x[e], step, levels, drawn_word(by, e)) + 0.0f;  // no -0
    }
    return sent;
  };
}

TEST(Qsgd, EqualsTheDefinitionWithItsDefaults) {
  expect_equals_oracle(qsgd(), {}, levels_of(4, 512, true));
}

TEST(Qsgd, EqualsTheDefinitionWithEveryWidthAndEitherNorm) {
  expect_equals_oracle(qsgd(), {{"bits", 8}, {"bucket", 0}}, levels_of(8, UINT32_MAX, true));
  expect_equals_oracle(qsgd(), {{"bits", 2}, {"bucket", 64}, {"norm", "max"}},
                       levels_of(2, 64, false));
  for (const int bits : {3, 7})
    expect_equals_oracle(qsgd(), {{"bits", bits}, {"bucket", 2048}, {"norm", "max"}},
                         levels_of(bits, 2048, false));
}

TEST(Qsgd, SixteenMillionElementsEqualTheOracle) {
  expect_large_gradients_equal({.plugin = qsgd(), .options = {{"bucket", 0}}},
                               levels_of(4, UINT32_MAX, true));
}

// A level is up or down by less than a step, so its deviation is at most half a step; with 2 bits
// and the Euclidean norm that is sqrt(|x| norm).
TEST(Qsgd, TheExpectationIsTheInput) {
  const std::vector<float> x = heavy_tailed(256, 8);
  for (const int bits : {2, 4, 8}) {
    const double step = step_for(reach_of(x.data(), x.size(), true), (1 << (bits - 1)) - 1);
    expect_unbiased(qsgd(), {{"bits", bits}}, x, 4000, [&](uint64_t) { return step / 2; });
  }
}

// Lemma 3.1 of the paper: E|Q(x) - x|^2 <= min(n / s^2, sqrt(n) / s) |x|^2.
TEST(Qsgd, TheVarianceIsBoundedAsInThePaper) {
  const uint64_t n = 512;
  const std::vector<float> x = heavy_tailed(n, 3);
  for (const int bits : {2, 4, 8}) {
    CompressorRig rig({.ranks = 1}, {{512}}, qsgd(), {{"bits", bits}});
    const double s = (1 << (bits - 1)) - 1;
    const double squares = std::pow(reach_of(x.data(), n, true), 2);
    double error = 0;
    for (int step = 0; step < 200; ++step) {
      rig.step({{x}});
      for (uint64_t e = 0; e < n; ++e) error += std::pow(double{rig.sent(0, 0)[e]} - x[e], 2);
    }
    // 1.1: the mean over 200 draws of 512 elements stays far closer than that to its expectation.
    EXPECT_LE(error / 200, 1.1 * std::min(n / (s * s), std::sqrt(n) / s) * squares) << bits;
  }
}

// With steps so small that the rest of rounding is less than the input: see README.md.
TEST(Qsgd, NothingIsLostOver100StepsOfEveryKind) {
  expect_conserves(qsgd(), {{"bits", 8}});
  expect_conserves(qsgd(), {{"bits", 6}, {"bucket", 64}, {"norm", "max"}});
}

TEST(Qsgd, EveryCodePathSendsAndKeepsTheSame) {
  expect_one_result_wherever_it_runs(qsgd(), {{"bits", 8}});
}

TEST(Qsgd, HugeAndTinyBucketsStayFinite) {
  std::vector<float> x(192, FLT_MAX);
  for (uint64_t e = 64; e < 128; ++e) x[e] = e % 2 == 0 ? FLT_TRUE_MIN : -FLT_TRUE_MIN;
  for (uint64_t e = 128; e < 192; ++e) x[e] = 0;
  for (const char* norm : {"l2", "max"})
    for (const int bits : {2, 8}) {
      CompressorRig rig({.ranks = 1}, {{192}}, qsgd(),
                        {{"bits", bits}, {"bucket", 64}, {"norm", norm}},
                        load_plugin("memory", "residual"));
      rig.step({{x}});
      for (uint64_t e = 0; e < 192; ++e) {
        ASSERT_TRUE(std::isfinite(rig.sent(0, 0)[e]));
        ASSERT_TRUE(std::isfinite(rig.work(0, 0)[e]));
      }
      if (std::string(norm) != "max") continue;
      for (uint64_t e = 64; e < 192; ++e) ASSERT_EQ(rig.sent(0, 0)[e], x[e]);
    }
}

TEST(Qsgd, SendsAsManyBitsAsItSays) {
  for (const int bits : {2, 4, 8}) {
    CompressorRig rig({.ranks = 1}, {{1000}}, qsgd(), {{"bits", bits}});
    EXPECT_EQ(rig.need(0).rounds[0].sections[0].capacity,
              (1000 * static_cast<uint64_t>(bits) + 63) / 64);
    EXPECT_EQ(rig.need(0).rounds[0].sections[1].capacity, 2u);
    EXPECT_EQ(rig.need(0).part_alignment, 512u);
  }
}

TEST(Qsgd, BucketsMustBeWholeWords) {
  for (const int bucket : {1, 65, 100})
    EXPECT_THROW(CompressorRig({.ranks = 1}, {{100}}, qsgd(), {{"bucket", bucket}}),
                 std::runtime_error);
}

TEST(Qsgd, PayloadsThatCannotBeAreRefusedByRankAndGradient) {
  for (const int bits : {2, 4, 8}) {
    CompressorRig rig({.ranks = 1}, {{2000}}, qsgd(), {{"bits", bits}});
    const std::vector<float> x = heavy_tailed(2000, 1);
    const auto refused = [&](const std::function<void(OwnedPayload&)>& change, const char* why) {
      expect_refused(rig, x, change, why);
    };
    refused([](OwnedPayload& p) { p.section(0).count -= 1; }, "elements in section 0");
    refused([](OwnedPayload& p) { p.section(1).count = 5; }, "at most 4");
    for (const float step : {-1.0f, INFINITY, NAN})
      refused([&](OwnedPayload& p) { entry<float>(p, 1, 2) = step; }, "in bucket 2");
    // The lowest code: only its upper bit set.
    refused([&](OwnedPayload& p) { entry<uint64_t>(p, 0, 0) = uint64_t{1} << (bits - 1); },
            "at element 0");
    expect_any_bytes_are_survived(rig);
  }
}

}  // namespace
}  // namespace penstock::test
