// Which of several ways is in force: each is tried for a while, the one whose steps were shortest
// stays, and is compared again from time to time, ever more seldom.
#pragma once

#include <penstock/scheduler.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace automatic {

enum class Next {
  keep,        // the plan in force
  plan,        // the way that way() now names
  begin_again  // all ways, from times as they are now measured
};

// Way 0 is dense. A look is the mean step over some steps; the first under a new plan is not
// counted, for buffers are made in it. All functions are [plan]. Not thread-safe.
class Trials {
 public:
  static constexpr uint64_t kLooks = 2;      // that count, for each way
  static constexpr uint64_t kSlowLooks = 3;  // in a row, before what is in force is doubted
  static constexpr uint64_t kFirstPatience = 16, kMostPatience = 4096;  // looks

  // `slack`: the share of a step by which a way may be slower than dense was, before it is doubted.
  explicit Trials(double slack) : slack_(slack) {}

  // A new round over ways of these names, one at least.
  void begin(std::vector<std::string> names) {
    names_ = std::move(names);
    measured_us_.assign(names_.size(), -1);
    is_settled_ = false;
    go_to(0);
  }

  size_t way() const { return way_; }
  bool is_settled() const { return is_settled_; }
  // Negative where it was not tried.
  double measured_us(size_t way) const { return measured_us_[way]; }

  // A look at steps of `step_us`. What is no time is no look.
  Next look(double step_us) {
    if (!std::isfinite(step_us) || step_us <= 0) return Next::keep;
    if (is_first_) {
      is_first_ = false;
      return Next::keep;
    }
    return is_settled_ ? look_back(step_us) : try_on(step_us);
  }

 private:
  void go_to(size_t way) {
    way_ = way;
    is_first_ = true;
    n_looks_ = n_slow_ = 0;
    sum_us_ = 0;
  }

  Next try_on(double step_us) {
    sum_us_ += step_us;
    if (++n_looks_ < kLooks) return Next::keep;
    measured_us_[way_] = sum_us_ / static_cast<double>(kLooks);
    if (way_ + 1 < measured_us_.size()) {
      go_to(way_ + 1);
      return Next::plan;
    }
    return settle();
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
    const bool is_slow = way_ != 0 && step_us > measured_us_[0] * (1 + slack_);
    n_slow_ = is_slow ? n_slow_ + 1 : 0;
    return n_slow_ == kSlowLooks || ++n_looks_ >= patience_ ? Next::begin_again : Next::keep;
  }

  double slack_;
  std::vector<std::string> names_;
  std::vector<double> measured_us_;
  size_t way_ = 0;
  bool is_settled_ = false;
  bool is_first_ = true;  // of the plan in force
  uint64_t n_looks_ = 0, n_slow_ = 0;
  double sum_us_ = 0;
  std::string settled_;  // the way on which the round before settled
  uint64_t patience_ = kFirstPatience;
};

}  // namespace automatic
