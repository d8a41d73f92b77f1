// Decides when a scheduler that plans from measured times asks for a new plan: once after the first
// measurements, and again only when the exposed time differs from its first value under the plan in
// force.
//
// Later exposed times are compared with this first value, not with the model's forecast: otherwise
// a wrong model would cause new plans for ever. Only if the first value is far from the forecast, a
// new plan may be requested at once, kRefinements times in a row, because the measurements under
// the new plan may correct the model.
#pragma once

#include "planning/cost.hpp"

#include <penstock/scheduler.h>

#include <algorithm>
#include <cstdint>

namespace penstock::planning {

class Replanning {
 public:
  // A difference in exposed time below this share of a step is noise, at any ratio.
  static constexpr double kNoise = 0.05;

  static constexpr uint32_t kRefinements = 2;

  // `profile_steps`: steps measured before the first plan from measured times; the scheduler should
  // be observed with this interval. `factor`, above 1: the change in exposed time that is worth a
  // new plan, if it is seen in `looks` observations in a row.
  Replanning(uint64_t profile_steps, double factor, uint64_t looks = 1)
      : profile_steps_(profile_steps), factor_(factor), observations_(looks) {}

  // [plan] Must be called when a plan was made: the next exposed time becomes the new first value.
  void plan_made() {
    settled_us_ = forecast_us_ = -1;
    observations_apart_ = 0;
  }
  // [plan] As above, with the plan's predicted exposed time, and whether the plan was made from
  // measured times.
  void plan_made(double forecast_us, bool measured) {
    plan_made();
    forecast_us_ = usable(forecast_us);
    measured_ = measured;
  }

  // [plan] PENSTOCK_KEEP_PLAN or PENSTOCK_MAKE_NEW_PLAN. A time that is negative, infinite or no
  // number counts as zero.
  uint32_t decide(const penstock_measurement& measurement) {
    if (measurement.step < profile_steps_) return PENSTOCK_KEEP_PLAN;
    if (!measured_) {
      measured_ = true;
      return PENSTOCK_MAKE_NEW_PLAN;
    }
    const double exposed = usable(measurement.exposed_us);
    const double noise = kNoise * usable(measurement.step_us);
    if (settled_us_ < 0) {
      settled_us_ = exposed;
      if (forecast_us_ < 0 || refinements_ == kRefinements ||
          !are_apart(exposed, forecast_us_, noise))
        return PENSTOCK_KEEP_PLAN;
      ++refinements_;
      return PENSTOCK_MAKE_NEW_PLAN;
    }
    observations_apart_ = are_apart(exposed, settled_us_, noise) ? observations_apart_ + 1 : 0;
    if (observations_apart_ < observations_) return PENSTOCK_KEEP_PLAN;
    refinements_ = 0;
    return PENSTOCK_MAKE_NEW_PLAN;
  }

 private:
  bool are_apart(double a_us, double b_us, double noise_us) const {
    const auto [least, most] = std::minmax(a_us, b_us);
    return most > factor_ * least && most - least > noise_us;
  }

  uint64_t profile_steps_;
  double factor_;
  uint64_t observations_;
  bool measured_ = false;    // a plan from measured times was asked for, or made
  double forecast_us_ = -1;  // of the plan in force; negative: none
  double settled_us_ = -1;   // exposed time under the plan in force; negative before it is seen
  uint64_t observations_apart_ = 0;  // in a row
  uint32_t refinements_ = 0;
};

}  // namespace penstock::planning
