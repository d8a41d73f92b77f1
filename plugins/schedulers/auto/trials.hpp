// Decides which of several assignments is in force. Each assignment is tried for a while, and the
// assignment with the shortest steps stays. It is compared again from time to time, ever more
// seldom.
#pragma once

#include <penstock/scheduler.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace automatic {

enum class Next {
  keep,        // keep the plan in force
  plan,        // plan the assignment that assignment() now names
  begin_again  // make new assignments from new times
};

// An assignment, and the time that the model predicts for a step with it.
struct Predicted {
  std::string name;
  double step_us;
};

// Tries assignments. Assignment 0 is dense; the others must come in the order of their predicted
// times, the shortest first. An observation is the mean time of some steps. The first observation
// under a new plan is not counted, because buffers are made in it, unless the assignment is
// hopeless: its step is kHopeless times as long as the shortest. A hopeless assignment is left out
// until it is no longer predicted or measured to be hopeless, until an observation of it costs
// little compared with the time since its last trial, or until the assignment in force becomes
// shorter, as on a faster network. All functions are [plan]. Not thread-safe.
class Trials {
 public:
  static constexpr uint64_t kObservations = 2;  // counted observations of each assignment
  // in a row, before the assignment in force is doubted
  static constexpr uint64_t kSlowObservations = 3;
  // share of the measured time; shorter steps mean another network
  static constexpr double kShorter = 0.8;
  static constexpr double kHopeless = 4;  // times the shortest step; making buffers costs less
  // share of the time since the last trial of a hopeless assignment
  static constexpr double kLittle = 0.05;
  static constexpr uint64_t kFirstPatience = 16, kMostPatience = 4096;  // observations

  // `slack`: an assignment is doubted if it is slower than dense was by more than this share of a
  // step.
  explicit Trials(double slack) : slack_(slack) {}

  // Begins a new round over these assignments, at least one.
  void begin(const std::vector<Predicted>& assignments) {
    const bool is_first_round = settled_.empty();
    names_.clear();
    for (const Predicted& assignment : assignments) names_.push_back(assignment.name);
    measured_us_.assign(names_.size(), -1);
    is_settled_ = false;
    list_to_try(assignments);
    // In the first round dense is tried last, because the time of another assignment shows whether
    // dense is hopeless. Later dense comes first, because the round may have begun because of
    // dense.
    if (is_first_round) std::rotate(to_try_.begin(), to_try_.end() - 1, to_try_.end());
    try_next();
  }

  // Forgets all measurements, because the assignments of another model are different even if their
  // names are equal.
  void forget() {
    tried_.clear();
    settled_.clear();
    last_us_ = 0;
  }

  size_t assignment() const { return way_; }
  bool is_settled() const { return is_settled_; }
  // The measured time of a step; negative if it is unknown.
  double measured_us(size_t assignment) const { return measured_us_[assignment]; }

  // Takes the observation that steps took `step_us`. Values that are no positive time are ignored.
  Next observe(double step_us) {
    if (!std::isfinite(step_us) || step_us <= 0) return Next::keep;
    for (auto& [name, tried] : tried_) tried.since_us += step_us;
    if (is_first_) {
      is_first_ = false;
      return !is_settled_ && step_us > kHopeless * shortest_us() ? take(step_us) : Next::keep;
    }
    return is_settled_ ? look_back(step_us) : try_on(step_us);
  }

 private:
  struct Tried {
    double measured_us = 0;
    double since_us = 0;  // the time of all steps since the trial
  };

  // Lists all assignments that are not hopeless. Dense is last in the list, so it is tried first.
  void list_to_try(const std::vector<Predicted>& assignments) {
    double shortest = assignments.front().step_us;
    for (const Predicted& assignment : assignments)
      shortest = std::min(shortest, assignment.step_us);
    to_try_.clear();
    for (size_t assignment = assignments.size(); assignment-- > 0;)
      if (assignments[assignment].step_us > kHopeless * shortest &&
          is_hopeless(assignments[assignment].name))
        measured_us_[assignment] = tried_[assignments[assignment].name].measured_us;
      else
        to_try_.push_back(assignment);
    if (to_try_.empty()) to_try_.push_back(0);
  }
  // Whether the last measured time of an assignment is hopeless compared with the assignment in
  // force.
  bool is_hopeless(const std::string& name) const {
    const auto tried = tried_.find(name);
    if (tried == tried_.end() || last_us_ <= 0) return false;
    return tried->second.measured_us > kHopeless * last_us_ &&
           tried->second.measured_us > kLittle * tried->second.since_us;
  }
  // The shortest time that is known in this round.
  double shortest_us() const {
    double shortest = std::numeric_limits<double>::infinity();
    for (const double measured : measured_us_)
      if (measured >= 0) shortest = std::min(shortest, measured);
    return shortest;
  }

  void try_next() {
    go_to(to_try_.back());
    to_try_.pop_back();
  }
  void go_to(size_t assignment) {
    way_ = assignment;
    is_first_ = true;
    n_observations_ = n_slow_ = n_shorter_ = 0;
    sum_us_ = 0;
  }

  Next try_on(double step_us) {
    sum_us_ += step_us;
    if (++n_observations_ < kObservations) return Next::keep;
    return take(sum_us_ / static_cast<double>(kObservations));
  }

  // Takes the measured time of the assignment on trial, and goes on to the next assignment.
  Next take(double measured_us) {
    measured_us_[way_] = measured_us;
    tried_[names_[way_]] = {measured_us, 0};
    if (to_try_.empty()) return settle();
    try_next();
    return Next::plan;
  }

  // Chooses the assignment with the shortest time; among equal times the first, so that dense must
  // really be beaten.
  Next settle() {
    const auto least = std::min_element(measured_us_.begin(), measured_us_.end());
    const auto best = static_cast<size_t>(least - measured_us_.begin());
    patience_ = names_[best] == settled_ ? std::min(2 * patience_, kMostPatience) : kFirstPatience;
    settled_ = names_[best];
    is_settled_ = true;
    go_to(best);
    return Next::plan;
  }

  Next look_back(double step_us) {
    last_us_ = step_us;
    const bool is_slow = way_ != 0 && step_us > measured_us_[0] * (1 + slack_);
    const bool is_shorter = step_us < kShorter * measured_us_[way_];
    n_slow_ = is_slow ? n_slow_ + 1 : 0;
    n_shorter_ = is_shorter ? n_shorter_ + 1 : 0;
    if (n_shorter_ == kSlowObservations) tried_.clear();
    const bool doubts = n_slow_ == kSlowObservations || n_shorter_ == kSlowObservations;
    return doubts || ++n_observations_ >= patience_ ? Next::begin_again : Next::keep;
  }

  double slack_;
  std::vector<std::string> names_;
  std::vector<double> measured_us_;
  // assignments to try in this round; the next is the last element
  std::vector<size_t> to_try_;
  std::map<std::string, Tried> tried_;  // by name, in all rounds
  size_t way_ = 0;
  bool is_settled_ = false;
  bool is_first_ = true;  // the next observation is the first under the plan in force
  uint64_t n_observations_ = 0, n_slow_ = 0, n_shorter_ = 0;
  double sum_us_ = 0;
  double last_us_ = 0;   // the last observed step of the assignment that stayed
  std::string settled_;  // the assignment that stayed after the last round
  uint64_t patience_ = kFirstPatience;
};

}  // namespace automatic
