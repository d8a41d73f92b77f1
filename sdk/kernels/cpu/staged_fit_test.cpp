// Tests how many looks a fit in stages takes, and how it uses remembered numbers. The tests in
// plugins/compressors/sidco compare its thresholds with plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <kernels/staged_fit.hpp>
#include <testing/data.hpp>
#include <vector>

namespace penstock::kernels::staged_fit_test {
namespace {

constexpr CodePath kPath = CodePath::kPortable;
using Learned = std::vector<float>;

Learned remembering(float stages, float origin) {
  Learned learned(StagedRule::kLearned);
  learned[StagedRule::kStages] = stages;
  learned[StagedRule::kOrigin] = origin;
  return learned;
}

struct Fitted {
  uint32_t looks = 0;
  double threshold = 0;
  Learned learned;
};

Fitted fitted(const StagedRule& rule, const std::vector<float>& x, Learned learned) {
  const auto k = static_cast<uint64_t>(rule.density * static_cast<double>(x.size()));
  StagedFit fit;
  fit.begin(rule, x.size(), k, 1, learned.data());
  uint32_t looks = 0;
  for (; fit.looks() && looks < 100; ++looks)
    fit.take(rule,
             fit.looks_at_all()
                 ? sample_of(statistics(x.data(), x.size(), {.logs = rule.wants_logs()}, kPath),
                             rule.wants_logs())
                 : sample_of(exceedances(x.data(), x.size(), fit.look(), kPath)));
  fit.learn(rule, static_cast<float>(fit.threshold()), learned.data());
  return {looks, fit.threshold(), std::move(learned)};
}

std::vector<StagedRule> rules() {
  std::vector<StagedRule> rules;
  for (const TailLaw law :
       {TailLaw::kExponential, TailLaw::kPareto, TailLaw::kGammaPareto, TailLaw::kGaussian})
    for (const uint32_t stages : {0, 1, 2, 5, 16})
      rules.push_back(
          {.law = law, .stages = stages, .most_stages = 7, .density = 0.01, .first_ratio = 0.25});
  return rules;
}

TEST(StagedFit, NeverLooksMoreOftenThanItsRuleSays) {
  for (const StagedRule& rule : rules())
    for (const test::Distribution& distribution : test::distributions())
      for (const float origin : {0.0f, 1e-3f, 1.0f, 1e9f})
        EXPECT_LE(fitted(rule, distribution.draw(3000, 5), remembering(7, origin)).looks,
                  rule.most_looks())
            << distribution.name << ", stages " << rule.stages << ", origin " << origin;
}

TEST(StagedFit, LooksOnceOverARememberedOriginAndThroughAllStagesWhereItIsStale) {
  for (const test::Distribution& distribution : test::distributions()) {
    if (distribution.name != "laplace") continue;
    const std::vector<float> x = distribution.draw(20000, 5);
    for (const StagedRule& rule : rules()) {
      if (rule.law == TailLaw::kGaussian) continue;  // it is off, so a stage may find nothing
      const Fitted first = fitted(rule, x, remembering(7, 0));
      const uint32_t stages = rule.stages > 0 ? rule.stages : 7;
      EXPECT_EQ(first.looks, stages) << "stages " << rule.stages;
      if (stages == 1) continue;
      const Fitted second = fitted(rule, x, first.learned);
      EXPECT_EQ(second.looks, 1u) << "stages " << rule.stages;
      EXPECT_NEAR(second.threshold, first.threshold, 0.1 * first.threshold);
      EXPECT_EQ(fitted(rule, x, remembering(7, 1e9f)).looks, rule.most_looks());
    }
  }
}

TEST(StagedFit, ARememberedNumberOfStagesStaysWithinItsBounds) {
  const StagedRule adapted{.stages = 0, .most_stages = 7};
  const auto stages_of = [&](float remembered) {
    return adapted.stages_of(remembering(remembered, 0).data());
  };
  EXPECT_EQ(stages_of(0), 1u) << "nothing is remembered";
  EXPECT_EQ(stages_of(3), 3u);
  for (const float none : {-5.0f, std::nanf("")}) EXPECT_EQ(stages_of(none), 1u);
  for (const float many : {8.0f, 1e30f, INFINITY}) EXPECT_EQ(stages_of(many), 7u);
}

TEST(StagedFit, ZerosHaveNoThreshold) {
  for (const StagedRule& rule : rules()) {
    const Fitted found = fitted(rule, std::vector<float>(100, -0.0f), remembering(4, 0));
    EXPECT_EQ(found.looks, 1u);
    EXPECT_EQ(found.threshold, 0);
  }
}

}  // namespace
}  // namespace penstock::kernels::staged_fit_test
