// What a set measures for the scheduler that plans it: the times of its steps, joined over the
// ranks, what compressors cost, and the links.
#pragma once

#include "core/bucket/works.hpp"
#include "core/comm/transports.hpp"
#include "core/control/control.hpp"
#include "core/plugin/registry.hpp"
#include "core/trace/log.hpp"
#include "core/tuning/measure.hpp"
#include "core/tuning/ways.hpp"

#include <span>
#include <vector>

namespace penstock {

class Measurements {
 public:
  // What measurements use of the run.
  struct Uses {
    Control& control;
    Registry& registry;
    Log& log;
    const Transports& transports;
    bool deterministic;  // plans must not follow from times
  };
  // All outlive it. `group`: the ranks of the set.
  Measurements(SetContext& set, const Uses& uses, const Group& group,
               const Works::Gradients& gradients)
      : set_(set), uses_(uses), group_(group), gradients_(gradients) {}

  // [control] From now on of steps of these works.
  void begin(const Works& works);
  // [control] At the end of a step.
  void add_step(Works& works, uint32_t phase, const StepTimes& times, uint64_t ended_us);
  // [application] See penstock_set_forward_times.
  Status add_forward(std::span<const double> first_use_us, double forward_us);
  // [control] Measures what compressors cost: only where the scheduler looks at costs, on rank 0,
  // and not in a deterministic run.
  void probe(const Fitting& fitting);

  // [control] Collective. The times of the steps since begin(), over all ranks; what is ready when,
  // on the slowest rank, is kept for plans. Other ranks are waited for `meeting_us`.
  Result<MeasuredTimes::Means> join(uint64_t meeting_us);
  // [control] Collective. Links as this moment finds them, of the levels of these channels: that of
  // all ranks comes first. The first rank's count: only it plans.
  Status measure_links(const Works& works, const std::vector<Channel*>& levels);

  // What was measured takes the place of what `model` has. The order of gradients stays where there
  // is a `given` one.
  void complete(const Fitting& fitting, planning::ModelEntries& model,
                const std::vector<uint64_t>& given) const;

 private:
  Status reduce(uint32_t reduction, std::vector<float>& values);
  BytesByWay bytes_by_way(const Fitting& fitting) const;
  void add_costs(planning::ModelEntries& model) const;
  void add_links(const Fitting& fitting, planning::ModelEntries& model) const;

  SetContext& set_;
  const Uses uses_;
  const Group& group_;
  const Works::Gradients& gradients_;

  MeasuredTimes times_;
  std::vector<double> ready_us_;    // per gradient, on the slowest rank; empty until measured
  std::vector<double> forward_us_;  // likewise, in the next forward
  double backward_us_ = 0, whole_forward_us_ = 0;
  std::vector<planning::LinkEntry> links_, lines_;  // of each level; by pattern and size
  LinkLines direct_lines_;                          // from device to device; empty: not measured
};

}  // namespace penstock
