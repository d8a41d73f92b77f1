// Plain loops for methods that estimate a threshold and correct it by the number of selected
// entries. Tests for every such method.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <support/compressor_cases.hpp>
#include <support/conservation.hpp>
#include <support/sparse_oracle.hpp>

namespace penstock::test {

// One gradient of one rank: its state, and one step of the rule.
struct SteeredOracle {
  double density = 0.001;
  int reuse_period = 1;
  bool exact = false;  // sends exactly the wanted number

  float last = 0;
  int age = 0;
  bool hit = false;
  std::map<std::string, double> learned = {};

  using Estimate = std::function<float(SteeredOracle&, const std::vector<float>&)>;
  using Learn = std::function<void(SteeredOracle&, float settled)>;

  // Ascending indices of the selected entries.
  std::vector<uint32_t> choose(const std::vector<float>& x, const Estimate& estimate,
                               const Learn& learn) {
    const uint64_t n = x.size();
    const uint64_t k = n == 0 ? 0 : kept_of(n, density);
    const uint64_t least = exact ? k : k - k / 10;
    const uint64_t most = exact ? k : std::min(n, k + k / 10);
    const bool reuse = last > 0 && age < reuse_period;
    float threshold = reuse ? last : estimate(*this, x);
    if (exact) threshold *= 0.9f;
    hit = true;
    std::vector<uint32_t> chosen;
    if (std::isfinite(threshold) && threshold > 0) chosen = reaching(x, threshold, most);
    if (chosen.size() < least) {
      hit = false;
      chosen = reaching(x, 0, k);
    }
    float settled = 0;
    if (chosen.empty()) {
      hit = false;
    } else {
      settled = threshold;
      if (!hit || chosen.size() == most) {
        settled = INFINITY;
        for (const uint32_t i : chosen) settled = std::min(settled, std::fabs(x[i]));
        hit = hit && settled < threshold * 1.25f;
      }
      const double excess = static_cast<double>(chosen.size()) / static_cast<double>(k);
      settled *=
          static_cast<float>(std::exp2(std::log2(excess) / (chosen.size() == most ? 8 : 16)));
    }
    if (!reuse) learn(*this, settled);
    last = settled;
    age = !hit ? reuse_period : reuse ? age + 1 : 1;
    return chosen;
  }

  // The entries that reach the threshold and are not zero. If there are more than `most`, the
  // largest.
  static std::vector<uint32_t> reaching(const std::vector<float>& x, float threshold,
                                        uint64_t most) {
    std::vector<float> only(x.size());
    uint64_t passed = 0;
    for (size_t i = 0; i < x.size(); ++i)
      if (x[i] != 0 && std::fabs(x[i]) >= threshold) {
        only[i] = x[i];
        ++passed;
      }
    return largest(only, std::min(passed, most));
  }
};

// The oracle for the payload of each gradient of each rank, with values of `value_type`. Each
// gradient has its own oracle, which is a copy of `fresh` before the first step.
inline SentOracle steered(const SteeredOracle& fresh, const SteeredOracle::Estimate& estimate,
                          const SteeredOracle::Learn& learn,
                          const std::string& value_type = "auto") {
  const auto oracles = std::make_shared<std::map<std::pair<uint64_t, uint32_t>, SteeredOracle>>();
  return [=](const std::vector<float>& x, const Sender& sender) {
    SteeredOracle& oracle = (*oracles)[{sender.item, sender.rank}];
    if (sender.step == 0) oracle = fresh;
    const uint64_t k = kept_of(x.size(), fresh.density);
    const uint64_t room = fresh.exact ? k : std::min<uint64_t>(x.size(), k + k / 10);
    return only_as(value_type, x, oracle.choose(x, estimate, learn), room);
  };
}

// Compares steered methods with their oracle, to the bit, over `steps` steps with a residual.
inline void expect_equals_steered_oracle(const LoadedPlugin& plugin, const OptionSettings& options,
                                         const SentOracle& oracle,
                                         const std::vector<uint64_t>& numels, uint64_t steps,
                                         const Distribution& distribution, uint32_t ranks) {
  expect_equals({.plugin = plugin,
                 .options = options,
                 .shapes = vectors(numels),
                 .rig = {.ranks = ranks,
                         .ranks_per_slice = ranks / 2,
                         .check_mass = true,
                         .mass_tolerance = 0x1p-23},  // a mean of signs rounds once
                 .steps = steps},
                oracle, distribution);
}

// The number of sent entries is within a tenth of the wanted number in every step, for every
// distribution with distinct magnitudes. Each step has new gradients.
inline void expect_kept_within_a_tenth(const LoadedPlugin& plugin, OptionSettings options) {
  for (const Distribution& distribution : distributions()) {
    const std::string& name = distribution.name;
    if (name == "constant" || name == "zero" || name == "sparse" || name == "alternating") continue;
    for (const double density : {0.001, 0.01}) {
      OptionSettings all = options;
      all.push_back({"density", density});
      const std::vector<uint64_t> numels{64, 1000, 20001};
      CompressorRig rig({.ranks = 1}, {{64}, {1000}, {20001}}, plugin, all,
                        load_plugin("memory", "residual"));
      for (uint64_t step = 0; step < 8; ++step) {
        rig.step(draw_gradients(distribution.draw, 1, numels, step));
        for (uint64_t i = 0; i < numels.size(); ++i) {
          const auto k = static_cast<double>(kept_of(numels[i], density));
          EXPECT_LE(std::fabs(static_cast<double>(rig.sent_count(0, i)) - k), 0.1 * k)
              << name << ", density " << density << ", " << numels[i] << " entries, step " << step;
        }
      }
    }
  }
}

// Nothing is lost over 100 steps of every kind, for every type of values. Methods without such
// types send one number for many entries. With the distribution "spike" this number is a million
// times larger than an entry, so its subtraction rounds by more than the bound of the entry. For
// these methods only the rig's check of each step is used.
inline void expect_nothing_is_lost(const LoadedPlugin& plugin, const OptionSettings& options,
                                   bool value_types = true) {
  for (const Distribution& distribution : distributions())
    for (const char* type : {"fp32", "fp16", "bf16", "int8"}) {
      const bool narrow = std::string(type) != "fp32";
      if (narrow && (!value_types || distribution.name != "laplace")) continue;
      if (!value_types && distribution.name == "spike") continue;
      OptionSettings all = options;
      if (value_types) all.push_back({"value_type", type});
      // The subtraction of a mean or of a rounded value rounds once.
      CompressorRig rig({.ranks = 3, .check_mass = true, .mass_tolerance = 0x1p-23},
                        {{30, 20}, {0}, {5}}, plugin, all, load_plugin("memory", "residual"));
      expect_conservation(rig, distribution);
    }
}

}  // namespace penstock::test
