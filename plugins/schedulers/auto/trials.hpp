// Which of several assignments is in force: each is tried for a while, the one whose steps were
// shortest stays, and is compared again from time to time, ever more seldom.
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
  keep,        // the plan in force
  plan,        // the assignment that assignment() now names
  begin_again  // all assignments, from times as they are now measured
};

// A way, and what the model takes a step with it for.
struct Predicted {
  std::string name;
  double step_us;
};

// Assignment 0 is dense; the others come as they are predicted, the shortest first. A look is the
// mean step over some steps; the first under a new plan is not counted, for buffers are made in it,
// unless the assignment is hopeless: kHopeless times as long as another. Such an assignment is not
// tried again before a look at it would cost little beside what has passed since, or the assignment
// in force has become shorter, as it does on a faster network. All functions are [plan]. Not
// thread-safe.
class Trials {
 public:
  static constexpr uint64_t kObservations = 2;      // that count, for each assignment
  static constexpr uint64_t kSlowObservations = 3;  // in a row, before what is in force is doubted
  static constexpr double kShorter = 0.8;  // of what was measured: the network is another one
  static constexpr double kHopeless = 4;   // times the shortest: more than making buffers costs
  static constexpr double kLittle = 0.05;  // of the time since, for a look at a hopeless way
  static constexpr uint64_t kFirstPatience = 16, kMostPatience = 4096;  // looks

  // `slack`: the share of a step by which an assignment may be slower than dense was, before it is
  // doubted.
  explicit Trials(double slack) : slack_(slack) {}

  // A new round over these assignments, one at least.
  void begin(const std::vector<Predicted>& assignments) {
    const bool is_first_round = settled_.empty();
    names_.clear();
    for (const Predicted& assignment : assignments) names_.push_back(assignment.name);
    measured_us_.assign(names_.size(), -1);
    is_settled_ = false;
    list_to_try(assignments);
    // What is predicted to be shortest tells whether dense is hopeless; later that is known, and
    // dense comes first, for it may be what a round was begun for.
    if (is_first_round) std::rotate(to_try_.begin(), to_try_.end() - 1, to_try_.end());
    try_next();
  }

  // Ways of a model to come are others, whatever their names.
  void forget() {
    tried_.clear();
    settled_.clear();
    last_us_ = 0;
  }

  size_t assignment() const { return way_; }
  bool is_settled() const { return is_settled_; }
  // Negative where it was not tried.
  double measured_us(size_t assignment) const { return measured_us_[assignment]; }

  // A look at steps of `step_us`. What is no time is no look.
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
    double since_us = 0;  // what has passed
  };

  // All but hopeless ones, dense last in the list and so the first to be tried.
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
  // As it was measured last, beside what is in force.
  bool is_hopeless(const std::string& name) const {
    const auto tried = tried_.find(name);
    if (tried == tried_.end() || last_us_ <= 0) return false;
    return tried->second.measured_us > kHopeless * last_us_ &&
           tried->second.measured_us > kLittle * tried->second.since_us;
  }
  // Of those that were measured in this round.
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

  // As what the assignment on trial was measured to take; on to the next one.
  Next take(double measured_us) {
    measured_us_[way_] = measured_us;
    tried_[names_[way_]] = {measured_us, 0};
    if (to_try_.empty()) return settle();
    try_next();
    return Next::plan;
  }

  // Among equals the first, so that dense need not be beaten by nothing.
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
  std::vector<size_t> to_try_;          // in this round, the next one last
  std::map<std::string, Tried> tried_;  // by name, in all rounds
  size_t way_ = 0;
  bool is_settled_ = false;
  bool is_first_ = true;  // of the plan in force
  uint64_t n_observations_ = 0, n_slow_ = 0, n_shorter_ = 0;
  double sum_us_ = 0;
  double last_us_ = 0;   // a step of the assignment that stayed
  std::string settled_;  // the assignment on which the round before settled
  uint64_t patience_ = kFirstPatience;
};

}  // namespace automatic
