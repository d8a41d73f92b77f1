// When a scheduler that plans from measured times asks for a new plan: once as soon as something is
// measured, and again only when the exposed time has left what the plan in force settled at.
//
// That time is compared with itself later on, not with the model's forecast: a model that is wrong
// would otherwise ask for new plans for ever.
#pragma once

#include "planning/cost.hpp"

#include <penstock/scheduler.h>

#include <cmath>
#include <cstdint>

namespace penstock::planning {

class Replanning {
 public:
  // A difference in exposed time below this share of a step is noise, whatever its ratio.
  static constexpr double kNoise = 0.05;

  // `profile_steps`: steps measured before the first plan from measured times; it is best to be
  // observed as often. `factor`, above 1: the change in exposed time that is worth a new plan.
  Replanning(uint64_t profile_steps, double factor)
      : profile_steps_(profile_steps), factor_(factor) {}

  // [plan] Tells that a plan was made: where the exposed time settles is to be seen anew.
  void plan_made() { settled_us_ = -1; }

  // [plan] PENSTOCK_KEEP_PLAN or PENSTOCK_MAKE_NEW_PLAN. A time that is negative, infinite or no
  // number counts as zero.
  uint32_t decide(const penstock_measurement& measurement) {
    if (measurement.step < profile_steps_) return PENSTOCK_KEEP_PLAN;
    if (!measured_) {
      measured_ = true;
      return PENSTOCK_MAKE_NEW_PLAN;
    }
    const double exposed = usable(measurement.exposed_us);
    if (settled_us_ < 0) {
      settled_us_ = exposed;
      return PENSTOCK_KEEP_PLAN;
    }
    const bool differs = exposed > factor_ * settled_us_ || exposed * factor_ < settled_us_;
    const double noise = kNoise * usable(measurement.step_us);
    return differs && std::abs(exposed - settled_us_) > noise ? PENSTOCK_MAKE_NEW_PLAN
                                                              : PENSTOCK_KEEP_PLAN;
  }

 private:
  uint64_t profile_steps_;
  double factor_;
  bool measured_ = false;   // a plan from measured times was asked for
  double settled_us_ = -1;  // exposed time under the plan in force; negative before it is seen
};

}  // namespace penstock::planning
