// The search by step time, against step times that are functions of the settings.
#include "planning/tuner.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace penstock::planning {
namespace {

using Setting = Tuner::Setting;
using StepTime = std::function<double(const Setting&)>;

const Tunable kSize{64, 0.25, 256};
const Tunable kCycle{1, 0.1, 100};

// All tried settings, including the final setting. A test fails if the search does not end.
std::vector<Setting> tune(Tuner& tuner, const StepTime& step_us) {
  std::vector<Setting> tried{tuner.setting()};
  tuner.plan_made();
  for (int look = 0; look < 1000 && !tuner.is_done(); ++look)
    if (tuner.observe(step_us(tuner.setting()))) {
      tuner.plan_made();
      tried.push_back(tuner.setting());
    }
  EXPECT_TRUE(tuner.is_done());
  return tried;
}

// Start-up per bucket against the exposed time of a large bucket: 1000 / s + 10 s + 500, least at
// s = 10 with 700.
double by_size(const Setting& setting) {
  return 1000 / setting[0] + 10 * setting[0] + 500;
}
double by_size_and_cycle(const Setting& setting) {
  return by_size(setting) + 100 * std::abs(std::log(setting[1] / 5));
}

TEST(Tuner, EndsNearTheFastestSizeFromAnyStart) {
  for (const double first : {0.25, 1.0, 10.0, 64.0, 256.0}) {
    Tuner tuner({{first, 0.25, 256}});
    tune(tuner, by_size);
    EXPECT_LE(by_size(tuner.setting()), 1.05 * 700) << "from " << first;
  }
}

TEST(Tuner, EndsNearTheFastestSizeAndCycle) {
  Tuner tuner({kSize, kCycle});
  tune(tuner, by_size_and_cycle);
  EXPECT_LE(by_size_and_cycle(tuner.setting()), 1.1 * 700);
}

TEST(Tuner, NeverTriesMoreThanItSaysNorBeyondItsBounds) {
  for (const std::vector<Tunable>& tunables :
       {std::vector<Tunable>{kSize}, std::vector<Tunable>{kSize, kCycle}}) {
    std::mt19937 random(3);
    std::uniform_real_distribution<double> any(1, 1e6);
    for (int round = 0; round < 200; ++round) {
      Tuner tuner(tunables);
      const auto tried = tune(tuner, [&](const Setting&) { return any(random); });
      EXPECT_LE(tuner.trial(), tuner.most_trials());
      for (const Setting& setting : tried)
        for (size_t i = 0; i < tunables.size(); ++i) {
          EXPECT_GE(setting[i], tunables[i].least);
          EXPECT_LE(setting[i], tunables[i].most);
        }
    }
  }
}

TEST(Tuner, StaysAtTheFirstSettingWhereNothingIsFaster) {
  Tuner tuner({kSize, kCycle});
  tune(tuner, [](const Setting&) { return 1000.0; });
  EXPECT_EQ(tuner.setting(), (Setting{64, 1}));
}

TEST(Tuner, TakesAGainBelowItsShareForNoise) {
  const auto faster_by = [](double share) {
    Tuner tuner({kSize});
    tune(tuner, [&](const Setting& s) { return s[0] == 64 ? 1000 : 1000 * (1 - share); });
    return tuner.setting() != Setting{64};
  };
  EXPECT_FALSE(faster_by(0.019));
  EXPECT_TRUE(faster_by(0.021));
}

TEST(Tuner, ThrowsTheFirstLookAtEveryPlanAway) {
  Tuner tuner({kSize});
  tuner.plan_made();
  EXPECT_FALSE(tuner.observe(1));
  EXPECT_FALSE(tuner.observe(1000));
  EXPECT_TRUE(tuner.observe(1000));
  EXPECT_EQ(tuner.first_us(), 1000);
  // A plan that was made in the middle of a trial begins it anew.
  tuner.plan_made();
  EXPECT_FALSE(tuner.observe(900));
  EXPECT_FALSE(tuner.observe(900));
  tuner.plan_made();
  EXPECT_FALSE(tuner.observe(900));
  EXPECT_FALSE(tuner.observe(900));
  EXPECT_TRUE(tuner.observe(900));
}

// The best setting was lucky once: when it is measured again, it is not faster than the first.
TEST(Tuner, GoesBackToTheFirstSettingWhenTheBestDoesNotWinTwice) {
  Tuner tuner({kSize});
  int looks_elsewhere = 0;
  const auto tried = tune(tuner, [&](const Setting& setting) {
    return setting[0] != 64 && ++looks_elsewhere <= 3 ? 500.0 : 1000.0;
  });
  EXPECT_GT(looks_elsewhere, 3);
  EXPECT_EQ(tuner.setting(), Setting{64});
  EXPECT_EQ(tuner.best_us(), 1000);
}

TEST(Tuner, NeverEndsSlowerThanItBeganUnderNoise) {
  std::mt19937 random(11);
  std::exponential_distribution<double> delay(1.0 / 50);  // of about 7 %, and never a shorter step
  int near_the_best = 0;
  for (int round = 0; round < 300; ++round) {
    Tuner tuner({kSize, kCycle});
    tune(tuner, [&](const Setting& setting) { return by_size_and_cycle(setting) + delay(random); });
    EXPECT_LE(by_size_and_cycle(tuner.setting()), by_size_and_cycle({64, 1})) << round;
    near_the_best += by_size_and_cycle(tuner.setting()) <= 1.15 * 700 ? 1 : 0;
  }
  EXPECT_GE(near_the_best, 270);
}

TEST(Tuner, TheSameTimesBringTheSameProposals) {
  const auto run = [] {
    std::mt19937 random(7);
    Tuner tuner({kSize, kCycle});
    return tune(tuner, [&](const Setting& setting) {
      return by_size_and_cycle(setting) + static_cast<double>(random() % 100);
    });
  };
  EXPECT_EQ(run(), run());
}

TEST(Tuner, EndsAtTheFirstSettingWhenNothingElseThanNonsenseIsMeasured) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double absurd : {0.0, -5.0, kInfinity, -kInfinity, std::nan("")}) {
    Tuner tuner({kSize, kCycle});
    tune(tuner, [&](const Setting&) { return absurd; });
    EXPECT_EQ(tuner.setting(), (Setting{64, 1})) << absurd;
    EXPECT_EQ(tuner.first_us(), 0);
  }
}

TEST(Tuner, GivesASettingUpUnderWhichOnlyNonsenseIsMeasured) {
  Tuner tuner({kSize});
  tune(tuner, [](const Setting& setting) { return setting[0] < 64 ? 0 : by_size(setting); });
  EXPECT_EQ(tuner.setting(), Setting{64});
}

TEST(Tuner, OneLookThatIsNoTimeIsLeftOut) {
  Tuner tuner({kSize});
  int look = 0;
  tune(tuner, [&](const Setting& setting) { return ++look % 3 == 0 ? 0 : by_size(setting); });
  EXPECT_LE(by_size(tuner.setting()), 1.05 * 700);
}

TEST(Tuner, MovesBoundsThatTheFirstValueLiesBeyond) {
  Tuner tuner({{1000, 0.25, 256}});
  const auto tried = tune(tuner, by_size);
  EXPECT_EQ(tried[0], Setting{1000});
  EXPECT_LE(by_size(tuner.setting()), by_size({64}));
}

}  // namespace
}  // namespace penstock::planning
