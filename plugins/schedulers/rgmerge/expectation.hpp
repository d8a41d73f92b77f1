// What a plan is expected to leave exposed, and when the steps have left it for good.
#pragma once

#include <penstock/scheduler.h>

namespace rgmerge {

// Judges one look at the running job after the other. After each plan the first look says where
// its exposed time settles. If that is far from the forecast, the model was wrong somewhere: what
// was measured under the new plan may mend it, so it is asked again, at most kRefinements times in
// a row. From then on what was seen is what is expected: a model that stays wrong would otherwise
// ask for new plans for ever.
class Expectation {
 public:
  // `factor`, above 1: how far apart two exposed times must be; `looks`: how many looks in a row.
  Expectation(double factor, uint64_t looks) : factor_(factor), looks_(looks) {}

  // A new plan is in force, by measured times or not.
  void expect(double forecast_us, bool measured);

  // PENSTOCK_KEEP_PLAN or PENSTOCK_MAKE_NEW_PLAN.
  uint32_t decide(const penstock_measurement& measurement);

 private:
  bool are_apart(double a_us, double b_us, double step_us) const;

  static constexpr uint32_t kRefinements = 2;
  double factor_;
  uint64_t looks_;
  bool measured_ = false;  // the plan in force is made from measured times
  double forecast_us_ = 0;
  double settled_us_ = -1;  // negative before the first look
  uint64_t apart_ = 0;      // looks in a row that were
  uint32_t refinements_ = 0;
};

}  // namespace rgmerge
