// The plan that a set runs by, with the works that it makes: planned on rank 0, checked and agreed
// on by all, and swapped in whole.
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
  // All outlive it.
  Plans(SetContext& set, const Services& services, const Declaration& declaration,
        Consensus& consensus, SetChannels& channels, Measurements& measurements)
      : set_(set),
        services_(services),
        declaration_(declaration),
        consensus_(consensus),
        channels_(channels),
        measurements_(measurements) {}

  // Collective. Rank 0 plans; its bytes go to the others, who check them.
  Result<Plan> agree_on_plan(const Fitting& fitting);
  // Collective. Makes the works aside: where it fails, the set runs on with those that it has.
  Result<std::unique_ptr<Works>> agree_on_works(const std::shared_ptr<const Fitting>& fitting,
                                                Plan plan);
  // Makes the works of a plan that was saved. It does not check that the other ranks have the same
  // plan.
  Result<std::unique_ptr<Works>> works_of(const std::shared_ptr<const Fitting>& fitting, Plan plan);
  // From now on the set runs these; gives back those that were.
  std::unique_ptr<Works> install(std::unique_ptr<Works> works);

  bool is_made() const { return works_ != nullptr; }
  Works& works() { return *works_; }
  const Works& works() const { return *works_; }
  std::unique_ptr<Works> release() { return std::move(works_); }  // at the end of the set

  PlanFacts facts_of(const Fitting& fitting) const;
  // With what was measured.
  planning::ModelEntries model_of(const Fitting& fitting) const;
  // What the stage in force sends in a step.
  StageTraffic traffic() const {
    return works_->fitting().traffic(channels_.carriers(), set_.step.index);
  }
  // Is called when the frontend gives buckets: keeps the order in which the gradients of the last
  // step were handed in, for later plans.
  void keep_order_of_last_step();

 private:
  uint64_t routes_open_to(const Gradient& gradient, const Fitting& fitting) const;
  Status agree_on_needs(const Result<std::unique_ptr<Works>>& works);

  SetContext& set_;
  const Services& services_;
  const Declaration& declaration_;
  Consensus& consensus_;
  SetChannels& channels_;
  Measurements& measurements_;
  std::unique_ptr<Works> works_;       // null until the set is made
  std::vector<uint64_t> given_order_;  // of gradients; empty: no buckets were given
};

}  // namespace penstock
