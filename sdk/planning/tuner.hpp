// A search over one or two positive settings of a scheduler by the step time measured under them.
//
// Horovod and DeAR model the step time as a Gaussian process and try the point with the largest
// expected improvement. With a dozen noisy trials the priors decide that model, and it may end on a
// point that was lucky once. This search changes one setting at a time in equal steps of the
// logarithm, as long as the time improves, then in shorter steps. In the end the best setting must
// beat the first setting a second time, otherwise the first setting stays. The search draws no
// random numbers: equal observations give equal proposals.
#pragma once

#include "planning/cost.hpp"

#include <penstock/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace penstock::planning {

// A setting that may be tuned: its first value and its bounds, all above zero, in any unit. If the
// first value lies outside the bounds, they are moved to include it.
struct Tunable {
  double first;
  double least;
  double most;
};

// All functions are [plan].
class Tuner {
 public:
  using Setting = std::vector<double>;

  static constexpr double kGain = 0.02;         // a smaller share of the best time is noise
  static constexpr uint32_t kObservations = 2;  // observations of a trial that count
  static constexpr uint32_t kAbsurd = 3;        // unusable observations that end a trial
  static constexpr double kFirstFactor = 4;     // from one trial to the next
  static constexpr double kLastFactor = 1.414;  // shorter steps are not worth a trial
  static constexpr uint32_t kTrials = 10;       // per tunable, with the two final comparisons

  explicit Tuner(std::vector<Tunable> tunables)
      : tunables_(std::move(tunables)),
        most_trials_(kTrials * static_cast<uint32_t>(tunables_.size())) {
    for (Tunable& tunable : tunables_) {
      tunable.least = std::min(tunable.least, tunable.first);
      tunable.most = std::max(tunable.most, tunable.first);
      first_.push_back(tunable.first);
    }
    setting_ = best_ = first_;
  }

  // The values to plan with now, in the order of the tunables.
  const Setting& setting() const { return setting_; }
  bool is_done() const { return stage_ == Stage::kDone; }
  uint32_t trial() const { return trial_; }  // from 1
  uint32_t most_trials() const { return most_trials_; }
  // The state of the search, or its result, as text for people.
  std::string text() const {
    if (!is_done()) return sdk::text("tuning: trial ", trial_, " of at most ", most_trials_);
    if (first_us() == 0) return "tuning ended: no step time was measured";
    if (setting_ == first_)
      return sdk::text("tuned in ", trial_, " trials: no setting was faster than ", first_us_,
                       " us a step as configured");
    return sdk::text("tuned in ", trial_, " trials: ", best_us_, " us a step, ", first_us_,
                     " us as configured");
  }
  // Step times in microseconds under the first and the best setting; 0 if none was measured.
  double first_us() const { return std::isfinite(first_us_) ? first_us_ : 0; }
  double best_us() const { return std::isfinite(best_us_) ? best_us_ : 0; }

  // Must be called when a plan was made with the current setting. The next observation is warm-up.
  void plan_made() {
    is_warm_ = false;
    absurd_ = 0;
    observations_.clear();
  }

  // Takes the mean step time since the last observation. Returns true if a trial has ended: then
  // the caller should make a plan with setting(), at the end of the search at least to show text().
  // A time that is zero, negative, infinite or NaN is ignored; a setting under which only such
  // times are measured counts as infinitely slow.
  bool observe(double step_us) {
    if (is_done()) return false;
    if (!is_warm_) {
      is_warm_ = true;
      return false;
    }
    if (usable(step_us) > 0) {
      observations_.push_back(step_us);
      if (observations_.size() < kObservations) return false;
    } else if (++absurd_ < kAbsurd) {
      return false;
    }
    // Other load only ever makes a step longer, so the shortest is nearest to the truth.
    const double time_us = observations_.size() < kObservations
                               ? std::numeric_limits<double>::infinity()
                               : *std::min_element(observations_.begin(), observations_.end());
    plan_made();
    end_trial(time_us);
    return true;
  }

 private:
  enum class Stage { kFirst, kSearch, kFirstAgain, kBestAgain, kDone };

  void end_trial(double time_us) {
    switch (stage_) {
      case Stage::kFirst:
        first_us_ = best_us_ = time_us;
        if (std::isinf(time_us)) return finish(first_);  // nothing can be compared with it
        stage_ = Stage::kSearch;
        return next();
      case Stage::kSearch:
        if (is_gain(time_us, best_us_)) {
          best_ = setting_;
          best_us_ = time_us;
          failed_ = 0;
        } else {
          turn();
        }
        return next();
      case Stage::kFirstAgain:
        first_us_ = time_us;
        stage_ = Stage::kBestAgain;
        return propose(best_);
      case Stage::kBestAgain:
        best_us_ = time_us;
        return finish(is_gain(best_us_, first_us_) ? best_ : first_);
      case Stage::kDone:
        return;
    }
  }

  static bool is_gain(double time_us, double than_us) { return time_us < (1 - kGain) * than_us; }

  // Goes to the next direction: up, down, then the next tunable. Takes shorter steps when no
  // direction gained.
  void turn() {
    ++failed_;
    direction_ = (direction_ + 1) % n_directions();
    if (failed_ < n_directions()) return;
    failed_ = 0;
    factor_ = std::sqrt(factor_);
  }

  // Proposes the next setting that was not tried yet, or goes on to the decision.
  void next() {
    tried_.push_back(setting_);
    for (; factor_ >= kLastFactor && trial_ + 2 < most_trials_; turn()) {
      Setting candidate = best_;
      const size_t which = direction_ / 2;
      candidate[which] *= direction_ % 2 == 0 ? factor_ : 1 / factor_;
      candidate[which] =
          std::clamp(candidate[which], tunables_[which].least, tunables_[which].most);
      if (!was_tried(candidate)) return propose(candidate);
    }
    if (best_ == first_) return finish(first_);
    stage_ = Stage::kFirstAgain;
    propose(first_);
  }

  // Compares up to rounding, because a step up and a step down do not end exactly at the start.
  bool was_tried(const Setting& candidate) const {
    return std::any_of(tried_.begin(), tried_.end(), [&](const Setting& tried) {
      return std::equal(tried.begin(), tried.end(), candidate.begin(), [](double a, double b) {
        return std::abs(a - b) <= 1e-6 * std::max(a, b);
      });
    });
  }

  void propose(Setting setting) {
    setting_ = std::move(setting);
    ++trial_;
  }
  void finish(Setting setting) {
    setting_ = std::move(setting);
    if (setting_ == first_) best_us_ = first_us_;
    stage_ = Stage::kDone;
  }
  size_t n_directions() const { return 2 * tunables_.size(); }

  std::vector<Tunable> tunables_;
  uint32_t most_trials_;
  Setting first_, best_, setting_;
  std::vector<Setting> tried_;
  double first_us_ = 0, best_us_ = 0;
  Stage stage_ = Stage::kFirst;
  uint32_t trial_ = 1;
  size_t direction_ = 0;  // 2 * tunable, + 1 to go down
  size_t failed_ = 0;     // directions in a row without a gain
  double factor_ = kFirstFactor;
  bool is_warm_ = false;
  uint32_t absurd_ = 0;               // in this trial
  std::vector<double> observations_;  // of this trial
};

}  // namespace penstock::planning
