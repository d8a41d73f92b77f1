// The number of entries that our threshold methods send, divided by the wanted number. The table in
// docs/thresholds.md has these numbers, and thresholds_test.cpp checks them.
#pragma once

#include <algorithm>
#include <cmath>
#include <support/sparse_oracle.hpp>
#include <testing/data.hpp>
#include <testing/gtest.hpp>
#include <testing/rig.hpp>

namespace penstock::test {

// A plugin with options, and its name in the table.
struct ThresholdMethod {
  std::string name;
  std::string plugin;
  OptionSettings options = {};
};

inline const std::vector<ThresholdMethod>& threshold_methods() {
  static const std::vector<ThresholdMethod> all{
      {"Gaussian-k", "gaussiank"},
      {"RedSync", "redsync"},
      {"RedSync trimmed", "redsync", {{"search", "trimmed"}}},
      {"SIDCo-E", "sidco"},
      {"SIDCo-P", "sidco", {{"law", "pareto"}}},
      {"SIDCo-GP", "sidco", {{"law", "gamma_pareto"}}},
      {"DGC", "dgc"},
      {"DGC, lower 0.9", "dgc", {{"lower", 0.9}}}};
  return all;
}

// Laplace entries, of which nine in ten are exactly zero.
inline std::vector<float> sparse_laplace(uint64_t n, uint64_t seed) {
  std::vector<float> values = distributions()[1].draw(n, seed);
  Random random(seed + 1);
  for (float& value : values)
    if (random.below(10) != 0) value = 0;
  return values;
}

inline const std::vector<Distribution>& entry_laws() {
  static const std::vector<Distribution> all{{"normal", distributions()[0].draw},
                                             {"Laplace", distributions()[1].draw},
                                             {"Student-t 3", distributions()[2].draw},
                                             {"sparse", sparse_laplace}};
  return all;
}

struct KeptShare {
  double median, least, most;
};

// Over steps 6 to 12 of one rank with a residual, with 65536 new entries in every step.
inline KeptShare kept_share(const ThresholdMethod& method, const Distribution& law,
                            double density) {
  constexpr uint64_t kNumel = 65536, kSteps = 12, kWarmUp = 5;
  OptionSettings options = method.options;
  options.push_back({"density", density});
  CompressorRig rig({.ranks = 1}, {{kNumel}}, load_plugin("compressor", method.plugin), options,
                    load_plugin("memory", "residual"));
  std::vector<double> shares;
  for (uint64_t step = 0; step < kSteps; ++step) {
    rig.step(draw_gradients(law.draw, 1, {kNumel}, step));
    if (step >= kWarmUp)
      shares.push_back(static_cast<double>(rig.sent_count(0, 0)) /
                       static_cast<double>(kept_of(kNumel, density)));
  }
  std::sort(shares.begin(), shares.end());
  return {shares[shares.size() / 2], shares.front(), shares.back()};
}

}  // namespace penstock::test
