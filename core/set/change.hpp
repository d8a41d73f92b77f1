// Changes of a set between two steps: switches of the configuration, new plans from what was
// measured, other buckets of the frontend.
#pragma once

#include "core/set/carries.hpp"
#include "core/set/fits.hpp"
#include "core/set/plans.hpp"
#include "core/set/residence.hpp"
#include "core/set/step.hpp"
#include "core/set/traffic.hpp"

#include <span>

namespace penstock {

// All functions are [control] and collective.
class Change {
 public:
  // What a change uses of the other parts of its set.
  struct Uses {
    const Declaration& declaration;
    Consensus& consensus;
    const Fits& fits;
    Plans& plans;
    Measurements& measurements;
    SetChannels& channels;
    Traffic& traffic;
    Carries& carries;
    Residence& residence;
    Step& step;
  };
  // All outlive it.
  Change(const SetContext& set, const Services& services, const Uses& uses)
      : set_(set), services_(services), uses_(uses) {}

  // Does what is due after a step that counts. If Consensus knows that all ranks were refused the
  // set is unchanged. Any other failure may leave this rank half changed.
  Status after_step();
  // Of the frontend, one for each gradient; see penstock_set_given_buckets.
  Status give_buckets(std::span<const uint32_t> buckets);
  // What `next` does not keep any more becomes a carry, which the next step adds.
  Status hand_over(const Works& next);

 private:
  Status observe();
  Result<bool> wants_new_plan(const MeasuredTimes::Means& means);
  Status measure_links();
  Status switch_scheme();
  Status replace_works(const std::shared_ptr<const Fitting>& fitting);
  Status agree_on_buckets(std::span<const uint32_t> buckets) const;

  const SetContext& set_;
  const Services& services_;
  const Uses uses_;
};

}  // namespace penstock
