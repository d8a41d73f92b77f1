// Decides when the ranks make a new plan of cycles: once as soon as ready times are measured, and
// again only if many gradients have become ready at other times than when the plan was new.
#pragma once

#include <planning/cost.hpp>

#include <penstock/scheduler.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

// Compares times with the first observation under the plan in force, not with the model's times:
// the model has the times of the slowest rank, a measurement has the mean over ranks.
class Moving {
 public:
  // A change of a ready time by less than this share of backward is noise, even if a cycle is
  // shorter.
  static constexpr double kNoise = 0.05;
  // moved observations in a row that lead to a new plan
  static constexpr uint64_t kObservations = 2;

  Moving(uint64_t profile_steps, double cycle_us, double share)
      : profile_steps_(profile_steps), cycle_us_(cycle_us), share_(share) {}

  // [plan] Reports that a plan was made, and whether it was made from measured times.
  void plan_made(bool measured) {
    measured_ = measured_ || measured;
    settled_us_.clear();
    observations_apart_ = 0;
  }

  // [plan] PENSTOCK_KEEP_PLAN or PENSTOCK_MAKE_NEW_PLAN. A value that is no time counts as zero.
  uint32_t decide(const penstock_measurement& measurement) {
    if (measurement.step < profile_steps_) return PENSTOCK_KEEP_PLAN;
    if (!measured_) {
      measured_ = true;
      return PENSTOCK_MAKE_NEW_PLAN;
    }
    std::vector<double> ready_us(measurement.n_gradients);
    for (uint64_t i = 0; i < measurement.n_gradients; ++i)
      ready_us[i] = penstock::planning::usable(measurement.ready_us[i]);
    if (settled_us_.size() != ready_us.size()) {
      settled_us_ = ready_us;
      observations_apart_ = 0;
      return PENSTOCK_KEEP_PLAN;
    }
    const double noise =
        std::max(cycle_us_, kNoise * penstock::planning::usable(measurement.backward_us));
    uint64_t moved = 0;
    for (size_t i = 0; i < ready_us.size(); ++i)
      moved += std::abs(ready_us[i] - settled_us_[i]) > noise ? 1 : 0;
    const bool apart =
        moved > 0 && static_cast<double>(moved) >= share_ * static_cast<double>(ready_us.size());
    observations_apart_ = apart ? observations_apart_ + 1 : 0;
    return observations_apart_ < kObservations ? PENSTOCK_KEEP_PLAN : PENSTOCK_MAKE_NEW_PLAN;
  }

 private:
  uint64_t profile_steps_;
  double cycle_us_;
  double share_;
  bool measured_ = false;           // a plan from measured times was asked for, or made
  std::vector<double> settled_us_;  // first observation under the plan in force; empty before it
  uint64_t observations_apart_ = 0;
};
