// Informs the user about a set: its report and counters, a log line at its start and end, the
// profile of its model, and a warning that names a gradient that is not finite.
#pragma once

#include "core/base/mutex.hpp"
#include "core/set/plans.hpp"
#include "core/set/residence.hpp"
#include "core/set/step.hpp"
#include "core/set/traffic.hpp"
#include "core/tuning/record.hpp"

#include <penstock/runtime.h>

#include <memory>
#include <string>

namespace penstock {

// Functions without a mark are [control].
class Reporter {
 public:
  // The other parts of the set that the reporter uses.
  struct Uses {
    const Declaration& declaration;
    const Step& step;
    Plans& plans;
    const SetChannels& channels;
    Traffic& traffic;
    const Residence& residence;
  };
  // The arguments must outlive the object.
  Reporter(SetContext& set, const Services& services, const Uses& uses)
      : set_(set), services_(services), uses_(uses) {}

  // The set is made.
  void begin();
  // A step has ended; `counts`: some gradient of it was applied.
  void add_step(uint32_t phase, const StepTimes& times, uint64_t ended_us, bool counts);
  // A step has ended: counts it if a gradient of this rank was not finite.
  void count_nonfinite();
  // [application] Warns once, on a rank that had a gradient that is not finite. Called after each
  // wait and at the end of a step.
  void warn_of_nonfinite();
  // The set ends: logs a summary, and writes the profile.
  void end();

  Result<std::string> report();
  void counters(penstock_counters& counters) const;  // [any]

 private:
  void say_plan() const;
  void say_end() const;
  double waited_share() const;
  std::vector<double> hear_waits(double mine) const;
  void record(uint32_t phase, const StepTimes& times);
  void write_profile();

  SetContext& set_;
  const Services& services_;
  const Uses uses_;
  std::unique_ptr<ModelRecord> record_;  // null: no profile is wanted, or another rank writes it

  mutable Mutex mutex_;  // of the counters
  penstock_counters totals_ PENSTOCK_GUARDED_BY(mutex_){};
  double dense_moved_ PENSTOCK_GUARDED_BY(mutex_) = 0;
  uint64_t started_us_ = 0, ended_us_ = 0;  // first gradient of the set, end of the last step
  uint64_t nonfinite_steps_ = 0;
  bool said_nonfinite_ = false;
};

}  // namespace penstock
