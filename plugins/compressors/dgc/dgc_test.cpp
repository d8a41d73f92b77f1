// The selection of Deep Gradient Compression against plain loops with full sorts.
#include <cmath>
#include <support/compressor_cases.hpp>
#include <support/conservation.hpp>
#include <support/contraction.hpp>
#include <support/sparse_oracle.hpp>

#include "geometry.hpp"

namespace penstock::test {
namespace {

LoadedPlugin plugin() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin residual() {
  return load_plugin("memory", "residual");
}

uint64_t splitmix(uint64_t z) {
  return Random(z).bits();
}

// Where sampling starts: splitmix(splitmix(seed ^ splitmix(gradient G + 3)) + step G) mod stride.
uint64_t start_of(uint64_t seed, uint64_t step, uint64_t gradient, uint64_t stride) {
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;
  return splitmix(splitmix(seed ^ splitmix(gradient * kGolden + 3)) + step * kGolden) % stride;
}

struct Setting {
  double density;
  double upper = 1.3;
  double lower = 0.8;
  bool resample = true;
  const char* value_type = "fp32";
};

std::vector<uint32_t> reaching(const std::vector<float>& x, float threshold) {
  std::vector<uint32_t> chosen;
  for (uint32_t i = 0; i < x.size(); ++i)
    if (std::fabs(x[i]) >= threshold) chosen.push_back(i);
  return chosen;
}

// The `most` largest of the chosen entries.
std::vector<uint32_t> cut(const std::vector<float>& x, const std::vector<uint32_t>& chosen,
                          uint64_t most) {
  std::vector<float> only(x.size(), 0.0f);
  if (chosen.size() <= most) return chosen;
  for (const uint32_t i : chosen) only[i] = x[i];
  return largest(only, most);
}

// The most entries that may be sent of n without resampling.
uint64_t most_of(uint64_t k, const Setting& setting, uint64_t n) {
  return std::min(n,
                  static_cast<uint64_t>(std::ceil(setting.upper * static_cast<double>(k) - 1e-9)));
}

std::vector<uint32_t> oracle_selection(const std::vector<float>& x, const Setting& setting,
                                       uint64_t gradient, uint64_t step) {
  const uint64_t n = x.size();
  const uint64_t k = kept_of(n, setting.density);
  const dgc::Geometry geometry = dgc::geometry_of(n, setting.density, 0.01);
  if (geometry.samples == n || setting.density == 1) return largest(x, k);
  std::vector<float> sample;
  for (uint64_t i = start_of(1, step, gradient, geometry.stride); i < n; i += geometry.stride)
    sample.push_back(x[i]);
  float threshold =
      std::fabs(sample[by_magnitude(sample)[kept_of(geometry.samples, setting.density) - 1]]);
  std::vector<uint32_t> chosen = reaching(x, threshold);
  for (int round = 0; round < 10; ++round) {
    const double count = static_cast<double>(chosen.size());
    if (count < setting.lower * static_cast<double>(k))
      threshold *= static_cast<float>(setting.lower);
    else if (!setting.resample && count > setting.upper * static_cast<double>(k))
      threshold *= static_cast<float>(setting.upper);
    else
      break;
    chosen = reaching(x, threshold);
  }
  if (setting.resample) return cut(x, chosen, k);
  return cut(x, chosen, most_of(k, setting, n));
}

SentOracle chosen_by(const Setting& setting) {
  return [setting](const std::vector<float>& x, const Sender& sender) {
    const uint64_t k = kept_of(x.size(), setting.density);
    return only_as(setting.value_type, x, oracle_selection(x, setting, sender.item, sender.step),
                   setting.resample ? k : most_of(k, setting, x.size()));
  };
}

// A mean that is taken out of work rounds once; other values are taken out exactly.
double rounding_of(const Setting& setting) {
  return std::string(setting.value_type) == "sign" ? 0x1p-23 : 0;
}

Comparison comparison(const Setting& setting, const std::vector<uint64_t>& numels, uint64_t steps,
                      uint32_t ranks) {
  return {.plugin = plugin(),
          .options = {{"density", setting.density},
                      {"resample", setting.resample},
                      {"upper", setting.upper},
                      {"lower", setting.lower},
                      {"value_type", setting.value_type}},
          .shapes = vectors(numels),
          .rig = {.ranks = ranks, .check_mass = true, .mass_tolerance = rounding_of(setting)},
          .steps = steps};
}

void expect_equals_oracle(const Setting& setting, const std::vector<uint64_t>& numels,
                          uint64_t steps, const Distribution& distribution, uint32_t ranks) {
  expect_equals(comparison(setting, numels, steps, ranks), chosen_by(setting), distribution);
}

TEST(Dgc, GeometryIsThePublishedOne) {
  // density, n, stride, samples, sampled_kept, kept: computed with the authors' formulas
  struct Case {
    double density;
    uint64_t n, stride, samples, sampled_kept, kept;
  };
  for (const Case& c : {Case{0.001, 36864, 17, 2168, 3, 37}, Case{0.001, 589824, 97, 6080, 7, 590},
                        Case{0.001, 2359296, 97, 24322, 25, 2360}, Case{0.01, 9408, 41, 229, 3, 95},
                        Case{0.01, 36864, 97, 380, 4, 369}}) {
    const dgc::Geometry geometry = dgc::geometry_of(c.n, c.density, 0.01);
    EXPECT_EQ(geometry.stride, c.stride) << c.n;
    EXPECT_EQ(geometry.samples, c.samples) << c.n;
    EXPECT_EQ(geometry.sampled_kept, c.sampled_kept) << c.n;
    EXPECT_EQ(geometry.kept, c.kept) << c.n;
    EXPECT_FALSE(geometry.exact);
  }
  EXPECT_TRUE(dgc::geometry_of(200, 0.01, 0.01).exact) << "two over the density are all needed";
  EXPECT_TRUE(dgc::geometry_of(1 << 20, 0.01, 1).exact);
}

TEST(Dgc, EqualsTheOracleOver100Steps) {
  for (const Distribution& distribution : distributions())
    for (uint32_t ranks = 1; ranks <= 4; ++ranks)
      expect_equals_oracle({0.05}, {1000, 0, 1, 57}, 100, distribution, ranks);
}

TEST(Dgc, CorrectingTheThresholdEqualsTheOracleOver100Steps) {
  for (const Distribution& distribution : distributions()) {
    expect_equals_oracle({0.05, 1.3, 0.8, false}, {1000, 0, 1, 57}, 100, distribution, 2);
    expect_equals_oracle({0.05, 1.0, 1.0, false}, {1000, 3}, 20, distribution, 2);
  }
}

TEST(Dgc, AwkwardSizesEqualTheOracle) {
  for (const AwkwardInput& input : awkward_inputs())
    for (const double density : {0.001, 0.01, 0.1, 1.0})
      for (const bool resample : {true, false})
        expect_equals_oracle({density, 1.3, 0.8, resample}, input.sizes, 3, input.distribution, 2);
}

TEST(Dgc, GradientsOfAnyScaleArriveAlike) {
  for (const char* type : {"auto", "bf16"})
    expect_any_scale_arrives_alike(plugin(), {{"density", 0.05}, {"value_type", type}});
}

TEST(Dgc, NarrowValuesEqualTheOracleAndLeaveTheirRoundingInWork) {
  for (const char* type : {"auto", "fp16", "bf16", "int8", "sign"})
    for (const Distribution& distribution : distributions())
      for (const bool resample : {true, false})
        expect_equals_oracle({0.05, 1.3, 0.8, resample, type}, {1000, 0, 1, 57}, 20, distribution,
                             3);
}

TEST(Dgc, SixteenMillionElementsEqualTheOracle) {
  const Setting setting{0.001};
  expect_large_gradients_equal(comparison(setting, {}, 1, 1), chosen_by(setting));
}

TEST(Dgc, SendsAtMostTheShareByMagnitudeAndNeverTheFirstByIndex) {
  // Ascending magnitudes: a cut by index would send the smallest passing entries.
  CompressorRig rig({.ranks = 1}, {{50000}}, plugin(), {{"density", 0.01}, {"value_type", "fp32"}},
                    residual());
  std::vector<float> ascending(50000);
  for (uint64_t e = 0; e < ascending.size(); ++e) ascending[e] = static_cast<float>(e);
  const std::vector<float> mean = rig.step({{ascending}})[0];
  EXPECT_LE(rig.sent_count(0, 0), 500u);
  EXPECT_GE(rig.sent_count(0, 0), 400u);
  EXPECT_EQ(mean.back(), 49999.0f);
  const uint64_t first = ascending.size() - rig.sent_count(0, 0);
  for (uint64_t e = 0; e < ascending.size(); ++e)
    ASSERT_EQ(mean[e], e >= first ? ascending[e] : 0.0f);
}

TEST(Dgc, SamplesOtherEntriesInEveryStep) {
  std::vector<uint64_t> starts;
  for (uint64_t step = 0; step < 100; ++step) starts.push_back(start_of(1, step, 0, 97));
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  EXPECT_GT(starts.size(), 40u) << "97 places, 100 draws: about 62 are expected";
}

TEST(Dgc, NothingIsLostOver100StepsOfEveryKind) {
  for (const Distribution& distribution : distributions())
    for (const bool resample : {true, false}) {
      CompressorRig rig({.ranks = 3, .check_mass = true}, {{30, 40}, {0}, {5}}, plugin(),
                        {{"density", 0.05}, {"resample", resample}}, residual());
      expect_conservation(rig, distribution);
    }
}

TEST(Dgc, CompensatingInTheSameSweepChangesNoBit) {
  for (const bool resample : {true, false})
    expect_folding_changes_no_bit(plugin(), {{"density", 0.05}, {"resample", resample}},
                                  {{30, 40}, {0}, {1}, {57}});
}

TEST(Dgc, NarrowValuesLoseNothing) {
  for (const char* type : {"fp16", "bf16", "int8"})
    for (const Distribution& distribution : distributions()) {
      CompressorRig rig({.ranks = 3, .check_mass = true}, {{30, 40}, {0}, {5}}, plugin(),
                        {{"density", 0.05}, {"value_type", type}}, residual());
      expect_conservation(rig, distribution);
    }
}

TEST(Dgc, NarrowPayloadsAreInput) {
  for (const char* type : {"fp16", "bf16", "int8"}) {
    CompressorRig rig({.ranks = 2}, {{16}}, plugin(), {{"density", 0.5}, {"value_type", type}});
    expect_narrow_payloads_are_input(rig);
  }
}

TEST(Dgc, SignPayloadsAreInput) {
  CompressorRig rig({.ranks = 2}, {{16}}, plugin(), {{"density", 0.5}, {"value_type", "sign"}},
                    residual());
  expect_sign_payloads_are_input(rig);
}

TEST(Dgc, PayloadsAreInput) {
  CompressorRig rig({.ranks = 2}, {{16}}, plugin(), {{"density", 0.5}});
  expect_sparse_payloads_are_input(rig);
}

TEST(Dgc, LeavesAtMostTheShareThatWasNotSent) {
  for (const bool resample : {true, false})
    expect_contraction({.plugin = plugin(),
                        .options = {{"density", 0.02}, {"resample", resample}},
                        .shapes = {{3000}, {0}, {1}, {57}, {20, 33}},
                        .rounding = 1e-6});
}

}  // namespace
}  // namespace penstock::test
