// A step of a scheme on a model and a cluster, predicted: the scheme's own plugins say what they
// send and what travels together, sdk/planning's forecast says when.
//
// Pure: the same files, model, cluster and costs give the same outcome.
#pragma once

#include "core/fit/bound_scheme.hpp"
#include "tools/penstock/plan/cluster.hpp"
#include "tools/penstock/plan/costs.hpp"
#include "tools/penstock/plan/profile.hpp"
#include "tools/penstock/plan/schemes.hpp"

#include <planning/forecast.hpp>

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace penstock::command {

// Means over the phases and, with jitter, over the steps that were drawn. Microseconds.
struct Prediction {
  double step_us = 0;     // forward, backward and what the application waits
  double exposed_us = 0;  // that wait
  double encode_us = 0, exchange_us = 0, decode_us = 0;
  double bytes = 0;        // that a rank sends
  bool compresses = true;  // any gradient arrives changed
  bool open = false;       // its payloads' sizes depend on values, so nothing is predicted
  std::set<std::string> without_cost;    // methods that count as free, since no table has them
  std::vector<std::string> explanation;  // the scheduler's
  planning::Plan plan;
  planning::Forecast timeline;  // of the first phase
  double forward_us = 0;
};

// When gradients are ready on the slowest rank: of one step, or of several where there is jitter.
using ReadyTimes = std::vector<std::vector<double>>;
ReadyTimes ready_times(const ModelProfile& profile, const Cluster& cluster);

// A scheme on a model among so many ranks on so many hosts, before anything is known of links.
class Rehearsal {
 public:
  // Both must outlive it. Errors are the plugins' and name the scheme.
  static Result<Rehearsal> make(const SchemeFile& file, const ModelProfile& profile,
                                const Cluster& cluster);

  // `ready` is that of the same profile and cluster, which has as many ranks.
  Result<Prediction> run(const Cluster& cluster, const CostTable& costs,
                         const ReadyTimes& ready) const;
  const std::shared_ptr<const BoundScheme>& bound_scheme() const { return bound_scheme_; }

 private:
  Rehearsal(const SchemeFile& file, const ModelProfile& profile)
      : file_(&file), profile_(&profile) {}
  planning::ModelEntries entries(const Cluster& cluster, const CostTable& costs,
                                 Prediction& outcome) const;
  void add_links(const Cluster& cluster, planning::ModelEntries& entries) const;
  void set_costs(const Cluster& cluster, const CostTable& costs, planning::ModelEntries& entries,
                 Prediction& outcome) const;
  // The model of a step in which gradients are ready so.
  planning::OwnedModel at(const std::vector<double>& ready_us, const Cluster& cluster,
                          planning::ModelEntries entries) const;
  // Plan and explanation.
  Status plan(const penstock_model& model, Prediction& outcome) const;
  // Times and bytes under the plan.
  void take_steps(const Cluster& cluster, const planning::ModelEntries& entries,
                  const ReadyTimes& ready, Prediction& outcome) const;
  // What the scheduler says to so many looks at these times.
  Result<bool> wants_new_plan(uint64_t look, const Prediction& outcome) const;
  Transports::Legs exchange(const Cluster& cluster, const planning::Bucket& bucket) const;
  PlannedBytes bytes_of(const planning::Bucket& bucket, uint32_t& rounds) const;

  const SchemeFile* file_;
  const ModelProfile* profile_;
  std::shared_ptr<const BoundScheme> bound_scheme_;
  std::shared_ptr<const Transports> transports_;
};

}  // namespace penstock::command
