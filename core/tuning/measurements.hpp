// The measurements of a set for its scheduler: the times of its steps, combined over the ranks, the
// costs of compressors, and the links.
#pragma once

#include "core/bucket/compiled_plan.hpp"
#include "core/comm/transports.hpp"
#include "core/control/control.hpp"
#include "core/plugin/registry.hpp"
#include "core/trace/log.hpp"
#include "core/tuning/measure.hpp"
#include "core/tuning/paths.hpp"

#include <span>
#include <vector>

namespace penstock {

class Measurements {
 public:
  // The objects of the run that measurements use.
  struct Uses {
    Control& control;
    Registry& registry;
    Log& log;
    const Transports& transports;
    bool deterministic;  // true: plans must not depend on times
  };
  // All must outlive it. `group`: the ranks of the set.
  Measurements(SetContext& set, const Uses& uses, const Group& group,
               const CompiledPlan::Gradients& gradients)
      : set_(set), uses_(uses), group_(group), gradients_(gradients) {}

  // [control] Measures the steps of this compiled plan from now on.
  void begin(const CompiledPlan& works);
  // [control] At the end of a step.
  void add_step(CompiledPlan& works, uint32_t phase, const StepTimes& times, uint64_t ended_us);
  // [application] See penstock_set_forward_times.
  Status add_forward(std::span<const double> first_use_us, double forward_us);
  // [control] Measures the costs of compressors: only if the scheduler reads costs, on rank 0, and
  // not in a deterministic run.
  void probe(const BoundScheme& bound_scheme);

  // [control] Collective. Returns the times of the steps since begin(), over all ranks, and keeps
  // for plans when each gradient is ready on the slowest rank. Waits `rendezvous_us` for other
  // ranks.
  Result<MeasuredTimes::Means> join(uint64_t rendezvous_us);
  // [control] Collective. Measures the links of these channels' levels in their present state; the
  // level of all ranks comes first. Only the first rank's results count, because only it plans.
  Status measure_links(const CompiledPlan& works, const std::vector<Channel*>& levels);

  // Replaces values of `model` by measurements. A `given` order of gradients is kept.
  void complete(const BoundScheme& bound_scheme, planning::ModelEntries& model,
                const std::vector<uint64_t>& given) const;

 private:
  Status reduce(uint32_t reduction, std::vector<float>& values);
  BytesByPath bytes_by_path(const BoundScheme& bound_scheme) const;
  void add_costs(planning::ModelEntries& model) const;
  void add_links(const BoundScheme& bound_scheme, planning::ModelEntries& model) const;

  SetContext& set_;
  const Uses uses_;
  const Group& group_;
  const CompiledPlan::Gradients& gradients_;

  MeasuredTimes times_;
  std::vector<double> ready_us_;    // per gradient, on the slowest rank; empty until measured
  std::vector<double> forward_us_;  // per gradient, on the slowest rank, in the next forward pass
  double backward_us_ = 0, whole_forward_us_ = 0;
  std::vector<planning::LinkEntry> links_, lines_;  // per level; by pattern and size
  LinkLines direct_lines_;                          // from device to device; empty: not measured
};

}  // namespace penstock
