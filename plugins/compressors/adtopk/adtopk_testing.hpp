// A test oracle of ADTopk in plain loops: it fully sorts every lane or the whole gradient, and
// reuses thresholds.
#pragma once

#include <support/compressor_cases.hpp>
#include <support/sparse_oracle.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

namespace penstock::test {

// max(1, floor(n * percent / 100))
inline uint64_t kept_of_lane(uint64_t n, uint64_t percent) {
  return std::min(n, std::max<uint64_t>(1, n * percent / 100));
}

// The largest entries along axis 1, for every index of the other axes; a vector is one lane.
inline std::vector<uint32_t> largest_along(const std::vector<float>& x, const Shape& shape,
                                           uint64_t percent) {
  if (x.empty()) return {};
  const uint64_t blocks = shape.size() < 2 ? 1 : static_cast<uint64_t>(shape[0]);
  const uint64_t length = shape.size() < 2 ? x.size() : static_cast<uint64_t>(shape[1]);
  const uint64_t lanes = x.size() / (blocks * length);
  std::vector<uint32_t> chosen;
  for (uint64_t block = 0; block < blocks; ++block)
    for (uint64_t lane = 0; lane < lanes; ++lane) {
      std::vector<float> values;
      for (uint64_t i = 0; i < length; ++i)
        values.push_back(x[(block * length + i) * lanes + lane]);
      for (const uint32_t i : largest(values, kept_of_lane(length, percent)))
        chosen.push_back(static_cast<uint32_t>((block * length + i) * lanes + lane));
    }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

// Mode `plain` selects along the axis in every step; mode `interleaved` selects from the whole
// gradient in odd steps.
inline SentOracle chosen_by(const std::string& mode, uint64_t percent,
                            const std::vector<Shape>& shapes,
                            const std::string& value_type = "auto") {
  return [=](const std::vector<float>& x, const Sender& sender) {
    const bool along = mode == "plain" || sender.step % 2 == 0;
    return only_as(value_type, x,
                   along ? largest_along(x, shapes[sender.item], percent)
                         : largest(x, kept_of_lane(x.size(), percent)));
  };
}

// How often each case of an odd step of mode `threshold` occurred.
struct Ways {
  int exact = 0;      // exact selection during the warm-up
  int reused = 0;     // all entries that reach the threshold were sent
  int cut = 0;        // more than a tenth too many reached it: the largest were sent
  int too_few = 0;    // too few reached it: exact selection before the threshold was due
  int longer = 0;     // the threshold was due; its successor serves longer
  int shorter = 0;    // the successor serves for less time
  int unchanged = 0;  // the successor serves equally long
  int by_rows = 0;    // late in the training: selection along the axis
};

struct ThresholdSetting {
  uint64_t percent;
  uint64_t warm_up_steps;
  uint64_t reuse_steps;
  uint64_t total_steps = 0;
  const char* value_type = "fp32";

  OptionSettings options() const {
    return {{"density", static_cast<double>(percent) / 100},
            {"mode", "threshold"},
            {"warm_up_steps", static_cast<int>(warm_up_steps)},
            {"reuse_steps", static_cast<int>(reuse_steps)},
            {"total_steps", static_cast<int>(total_steps)},
            {"value_type", value_type}};
  }
};

// Mode `threshold` for one gradient of one rank: its state, and its odd steps.
struct ThresholdOracle {
  float threshold = 0;    // the smallest magnitude of the last exact selection
  uint64_t found_at = 0;  // the step in which it was found
  uint64_t serves = 0;    // steps; 0: none was found yet
  bool settled = false;

  // Selects exactly the k largest entries, keeps the new threshold, and returns the indices.
  std::vector<uint32_t> exactly(const std::vector<float>& x, uint64_t k, uint64_t step) {
    const std::vector<uint32_t> chosen = largest(x, k);
    threshold = INFINITY;
    for (const uint32_t e : chosen) threshold = std::min(threshold, std::fabs(x[e]));
    found_at = step;
    return chosen;
  }

  // Decides how long the threshold serves that replaced a due threshold.
  void judge(float before, Ways& ways) {
    const float tolerance = before / 10, change = std::fabs(threshold - before);
    if (change < tolerance) {
      settled = true;
      serves += change < tolerance / 2 ? 2 : 1;
      ++ways.longer;
    } else if (change > tolerance) {
      settled = false;
      const uint64_t less = change > 2 * tolerance ? 2 : 1;
      const uint64_t shortest = std::min<uint64_t>(5, serves);
      serves = serves < shortest + less ? shortest : serves - less;
      ++ways.shorter;
    } else {
      ++ways.unchanged;
    }
  }

  std::vector<uint32_t> choose(const std::vector<float>& x, uint64_t step,
                               const ThresholdSetting& setting, Ways& ways) {
    const uint64_t k = kept_of_lane(x.size(), setting.percent);
    if (step < setting.warm_up_steps || serves == 0) {
      serves = setting.reuse_steps;
      ++ways.exact;
      return exactly(x, k, step);
    }
    if (step - found_at >= serves) {
      const float before = threshold;
      const std::vector<uint32_t> chosen = exactly(x, k, step);
      judge(before, ways);
      return chosen;
    }
    uint64_t passed = 0;
    for (const float value : x) passed += value != 0 && std::fabs(value) >= threshold ? 1 : 0;
    if (10 * passed < 9 * k) {
      ++ways.too_few;
      return exactly(x, k, step);
    }
    ++(passed > k + k / 10 ? ways.cut : ways.reused);
    return largest(x, std::min(passed, k + k / 10));
  }
};

inline SentOracle by_threshold(const ThresholdSetting& setting, const std::vector<Shape>& shapes,
                               Ways& ways) {
  const auto oracles = std::make_shared<std::map<std::pair<uint64_t, uint32_t>, ThresholdOracle>>();
  return [=, &ways](const std::vector<float>& x, const Sender& sender) {
    if (x.empty()) return x;
    ThresholdOracle& oracle = (*oracles)[{sender.item, sender.rank}];
    if (sender.step == 0) oracle = {};
    const uint64_t total = setting.total_steps;
    const bool late = total > 0 && sender.step > total - total / 4 && oracle.settled;
    const bool odd = sender.step % 2 == 1;
    if (odd && late) ++ways.by_rows;
    return only_as(setting.value_type, x,
                   odd && !late ? oracle.choose(x, sender.step, setting, ways)
                                : largest_along(x, shapes[sender.item], setting.percent));
  };
}

}  // namespace penstock::test
