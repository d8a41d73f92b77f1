// What people are told of a set: its report and counters, a line at its start and end, the profile
// of its model, and where values that are not finite came from.
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

// [control] where nothing else stands.
class Reporter {
 public:
  // What it uses of the other parts of its set.
  struct Uses {
    const Declaration& declaration;
    const Step& step;
    Plans& plans;
    const SetChannels& channels;
    Traffic& traffic;
    const Residence& residence;
  };
  // All outlive it.
  Reporter(SetContext& set, const Services& services, const Uses& uses)
      : set_(set), services_(services), uses_(uses) {}

  // The set is made.
  void begin();
  // A step has ended; `counts`: some gradient of it was applied.
  void add_step(uint32_t phase, const StepTimes& times, uint64_t ended_us, bool counts);
  // Whether this rank had a gradient in it that is not finite.
  void count_nonfinite();
  // [application] Warns, once, on the rank that had a gradient that is not finite, as soon as a
  // wait or the end of a step finds it.
  void warn_of_nonfinite();
  // The set ends: what it came to, and the profile.
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
  std::unique_ptr<ModelRecord> record_;  // null: nobody asked for it, or another rank keeps it

  mutable Mutex mutex_;  // of the counters
  penstock_counters totals_ PENSTOCK_GUARDED_BY(mutex_){};
  double dense_moved_ PENSTOCK_GUARDED_BY(mutex_) = 0;
  uint64_t started_us_ = 0, ended_us_ = 0;  // the first gradient of all, the end of the last step
  uint64_t nonfinite_steps_ = 0;
  bool said_nonfinite_ = false;
};

}  // namespace penstock
