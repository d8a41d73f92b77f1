// How long exchanges take, counted in steps of the optimizer: the delay that hides them. No torch
// is needed.
#ifndef PENSTOCK_LIBTORCH_APART_PACE_HPP
#define PENSTOCK_LIBTORCH_APART_PACE_HPP

#include "rotation.hpp"

#include <cstdint>
#include <deque>
#include <optional>

namespace penstock::torch {

// Measures steps and waits of one rank. Times are in seconds, of a clock that the caller reads. All
// calls come from the thread that trains.
class Pace {
 public:
  // The first exchange of each fragment also plans, so it does not count.
  explicit Pace(const Rotation& rotation) : delay_(rotation.delay), plans_(rotation.fragments) {}

  // Call it after the work on exchanges that follows a step.
  void step_begins(double now) { began_ = now; }
  // Call it right after a step, before the work on exchanges.
  void step_ends(double now);
  // Notes the wait for the result of one exchange.
  void waited(double seconds);

  struct Report {
    double step = 0;                    // the median of the last steps, without exchanges
    double wait = 0;                    // the longest of the last waits
    std::int64_t delay_that_hides = 0;  // the steps that this exchange took, and one more because
                                        // exchanges and steps share the processors
  };
  // Empty before the second round.
  std::optional<Report> report() const;

 private:
  std::int64_t delay_, plans_;
  std::deque<double> steps_, waits_;
  std::optional<double> began_;  // the present step
};

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_APART_PACE_HPP
