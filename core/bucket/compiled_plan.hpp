// A compiled plan: the buckets of a bound scheme and a plan, with everything that they need in a
// step. It is built aside and swapped in whole, so that an error while it is built changes nothing.
#pragma once

#include "core/bucket/items.hpp"
#include "core/fit/bound_scheme.hpp"
#include "core/state/state_store.hpp"

#include <map>
#include <memory>
#include <vector>

namespace penstock {

class CompiledPlan {
 public:
  using Phase = std::vector<std::unique_ptr<BucketRun>>;  // in order of priority
  using Gradients = std::vector<std::unique_ptr<Gradient>>;

  // `plan` has been checked against the bound scheme. Tensors that `earlier` keeps are shared with
  // it; if it is null, all tensors start from zero. Context and gradients must outlive the compiled
  // plan, and when it ends, none of its work may be under way on a device. Errors: OUT_OF_MEMORY,
  // DEVICE_ERROR, and the errors of plugins. [control]
  static Result<std::unique_ptr<CompiledPlan>> make(SetContext& context,
                                                    std::shared_ptr<const BoundScheme> bound_scheme,
                                                    Plan plan, const Gradients& gradients,
                                                    const StateStore* earlier);

  const BoundScheme& bound_scheme() const { return *bound_scheme_; }
  const std::shared_ptr<const BoundScheme>& shared_bound_scheme() const { return bound_scheme_; }
  const Plan& plan() const { return plan_; }
  void explain(std::vector<std::string> lines) { plan_.explanation = std::move(lines); }
  StateStore& states() { return states_; }
  const StateStore& states() const { return states_; }
  uint32_t period() const { return static_cast<uint32_t>(phases_.size()); }
  Phase& phase(uint32_t number) { return phases_[number]; }
  const std::vector<Phase>& phases() const { return phases_; }
  // The buckets in which a gradient takes part.
  const std::vector<BucketRun*>& of(uint32_t phase, uint64_t gradient) const {
    return where_[phase][gradient];
  }
  // The buckets with a leg that waits for the next forward, in the order of the messages of this
  // leg.
  const std::vector<BucketRun*>& forward_legs(uint32_t phase) const { return forward_legs_[phase]; }
  // Moves the sequence of each link on by the messages of this phase.
  void pass_turns(uint32_t phase) const {
    for (const auto& [link, count] : messages_[phase]) link->sequence_base += count;
  }
  uint64_t tags_per_step() const { return tags_per_step_; }
  bool has_host_sums() const {
    for (const planning::Bucket& bucket : plan_.buckets)
      if (adds_in_hosts(bucket.route)) return true;
    return false;
  }
  // True if some message is announced. All ranks answer alike, because they compare their needs.
  bool announces() const;
  bool defers() const { return defers_; }  // some leg waits for the next forward
  // From now on plugin calls use the scratch of this plan.
  void lend_scratch() const {
    for (const auto& [place, memory] : scratch_) place->lend(memory);
  }

 private:
  CompiledPlan(std::shared_ptr<const BoundScheme> bound_scheme, Plan plan, bool forgets,
               const StateStore* earlier)
      : bound_scheme_(std::move(bound_scheme)), plan_(std::move(plan)), states_(forgets, earlier) {}
  Status make_buckets(SetContext& context, const Gradients& gradients);
  Status make_scratch(WorkPlace& place, const ScratchNeed& need);
  Status make_bucket(SetContext& context, const planning::Bucket& plan, const Gradients& gradients,
                     bool only_compensates, ScratchNeed& scratch);
  void index(size_t n_gradients);
  void number_messages();
  Status check_tags(const SetContext& context) const;
  void add_forward_leg(BucketRun& bucket, uint32_t leg);

  const std::shared_ptr<const BoundScheme>
      bound_scheme_;  // outlives the buckets that point into it
  Plan plan_;
  StateStore states_;
  // Scratch for plugin calls on the engine thread, by place.
  std::vector<std::pair<WorkPlace*, WorkMemory>> scratch_;
  std::vector<Phase> phases_;
  std::vector<std::vector<std::vector<BucketRun*>>> where_;  // per phase and gradient
  std::vector<std::map<Link*, uint64_t>> messages_;          // per phase: the number of messages
  std::vector<std::vector<BucketRun*>> forward_legs_;        // per phase
  uint64_t tags_per_step_ = 1;
  bool defers_ = false;
};

}  // namespace penstock
