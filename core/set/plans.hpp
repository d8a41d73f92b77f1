// The plan of a set, and its compiled plan. Rank 0 makes the plan, all ranks check it and agree on
// it, and the compiled plan is swapped in whole.
#pragma once

#include "core/plan/planner.hpp"
#include "core/set/channels.hpp"
#include "core/set/consensus.hpp"
#include "core/set/declaration.hpp"
#include "core/tuning/measurements.hpp"

#include <memory>
#include <vector>

namespace penstock {

// All functions are [control].
class Plans {
 public:
  // The arguments must outlive the object.
  Plans(SetContext& set, const Services& services, const Declaration& declaration,
        Consensus& consensus, SetChannels& channels, Measurements& measurements)
      : set_(set),
        services_(services),
        declaration_(declaration),
        consensus_(consensus),
        channels_(channels),
        measurements_(measurements) {}

  // Collective. Rank 0 makes the plan and sends its bytes to the other ranks, which check them.
  Result<Plan> agree_on_plan(const BoundScheme& bound_scheme);
  // Collective. Makes the compiled plan aside: if this fails, the set keeps its present one.
  Result<std::unique_ptr<CompiledPlan>> agree_on_compiled_plan(
      const std::shared_ptr<const BoundScheme>& bound_scheme, Plan plan);
  // Makes the compiled plan of a saved plan. It does not compare the plan with the plans of
  // the other ranks.
  Result<std::unique_ptr<CompiledPlan>> compiled_plan_of(
      const std::shared_ptr<const BoundScheme>& bound_scheme, Plan plan);
  // Puts the compiled plan in force and returns the previous one.
  std::unique_ptr<CompiledPlan> install(std::unique_ptr<CompiledPlan> compiled);

  bool is_made() const { return compiled_ != nullptr; }
  CompiledPlan& compiled() { return *compiled_; }
  const CompiledPlan& compiled() const { return *compiled_; }
  std::unique_ptr<CompiledPlan> release() { return std::move(compiled_); }  // at the end of the set

  PlanFacts facts_of(const BoundScheme& bound_scheme) const;
  // The input of the scheduler, with measured times.
  planning::ModelEntries model_of(const BoundScheme& bound_scheme) const;
  // The planned traffic of the stage in force, in a step.
  StageTraffic traffic() const {
    return compiled_->bound_scheme().traffic(channels_.carriers(), set_.step.index);
  }
  // Called when the frontend gives buckets: keeps the order in which the gradients of the last
  // step were handed in, for later plans.
  void keep_order_of_last_step();

 private:
  uint64_t routes_open_to(const Gradient& gradient, const BoundScheme& bound_scheme) const;
  Status agree_on_needs(const Result<std::unique_ptr<CompiledPlan>>& compiled);

  SetContext& set_;
  const Services& services_;
  const Declaration& declaration_;
  Consensus& consensus_;
  SetChannels& channels_;
  Measurements& measurements_;
  std::unique_ptr<CompiledPlan> compiled_;  // null until the set is made
  std::vector<uint64_t> given_order_;       // of gradients; empty: no buckets were given
};

}  // namespace penstock
