// Changes a set between two steps: at a switch of the configuration, when measurements call for a
// new plan, and when the frontend gives other buckets.
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
  // The other parts of the set that a change uses.
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
  // The arguments must outlive the object.
  Change(const SetContext& set, const Services& services, const Uses& uses)
      : set_(set), services_(services), uses_(uses) {}

  // Makes the changes that are due after a step that counts. If Consensus has noted that all ranks
  // refuse the change, the set is unchanged. Any other failure may leave this rank half changed.
  Status after_step();
  // Takes the frontend's buckets, a bucket number for each gradient; see
  // penstock_set_given_buckets.
  Status give_buckets(std::span<const uint32_t> buckets);
  // Turns the mass that `next` does not keep into carries, which the next step adds.
  Status hand_over(const CompiledPlan& next);

 private:
  Status observe();
  Result<bool> wants_new_plan(const MeasuredTimes::Means& means);
  Status measure_links();
  Status switch_scheme();
  Status replace_compiled_plan(const std::shared_ptr<const BoundScheme>& bound_scheme);
  Status agree_on_buckets(std::span<const uint32_t> buckets) const;

  const SetContext& set_;
  const Services& services_;
  const Uses uses_;
};

}  // namespace penstock
