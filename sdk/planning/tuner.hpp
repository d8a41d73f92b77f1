// A search over one or two positive settings of a scheduler by the step time measured under them.
//
// Horovod and DeAR model the step time as a Gaussian process and try what improves most in
// expectation. With a dozen noisy trials that model is decided by its priors, and it may end on a
// point that was lucky once. This search goes along one setting at a time in even steps of the
// logarithm, on while that is faster, then in shorter steps; in the end what is best must beat the
// first setting a second time, or the first one stays. It draws no random numbers: the same
// observations bring the same proposals.
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

// A setting that may be tuned: where it begins and how far it may go, all above zero, in whatever
// unit. Bounds are moved where the first value lies beyond them, so that it is always within.
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
  static constexpr uint32_t kAbsurd = 3;        // observations that are no time, in one trial
  static constexpr double kFirstFactor = 4;     // from one trial to the next
  static constexpr double kLastFactor = 1.414;  // shorter steps are not worth a trial
  static constexpr uint32_t kTrials = 10;       // per tunable, with the two that decide at the end

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
  // For people: where the search is, or where it ended.
  std::string text() const {
    if (!is_done()) return sdk::text("tuning: trial ", trial_, " of at most ", most_trials_);
    if (first_us() == 0) return "tuning ended: no step time was measured";
    if (setting_ == first_)
      return sdk::text("tuned in ", trial_, " trials: no setting was faster than ", first_us_,
                       " us a step as configured");
    return sdk::text("tuned in ", trial_, " trials: ", best_us_, " us a step, ", first_us_,
                     " us as configured");
  }
  // Step times in microseconds that the search goes by; 0 where none was measured.
  double first_us() const { return std::isfinite(first_us_) ? first_us_ : 0; }
  double best_us() const { return std::isfinite(best_us_) ? best_us_ : 0; }

  // Tells that a plan was made, with the setting in force. The next observation is warm-up.
  void plan_made() {
    is_warm_ = false;
    absurd_ = 0;
    observations_.clear();
  }

  // Takes the mean step time since the last observation. True: a trial has ended and a plan should
  // be made with the setting that is in force now, at the end of the search for its words at least.
  // What is zero, negative, infinite or no number is left out; a setting under which nothing else
  // is measured counts as infinitely slow.
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

  // The next direction: up, down, then the next tunable; shorter steps once none of them gained.
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

  // Up to rounding: going up and down again ends beside where it began.
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
