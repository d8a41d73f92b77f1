// Predicts a step of a scheme on a model and a cluster. The scheme's own plugins state the bytes
// that they send and the gradients that travel together; the forecast of sdk/planning computes the
// times.
//
// The prediction is a pure function: equal files, models, clusters and costs give equal outcomes.
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

// A predicted step. The numbers are means over the phases and, with jitter, over the drawn steps.
// Times are microseconds.
struct Prediction {
  double step_us = 0;     // forward, backward and the time that the application waits
  double exposed_us = 0;  // the time that the application waits
  double encode_us = 0, exchange_us = 0, decode_us = 0;
  double bytes = 0;        // the bytes that a rank sends
  bool compresses = true;  // at least one gradient arrives changed
  bool open = false;       // the payload sizes depend on values, so nothing is predicted
  std::set<std::string> without_cost;    // methods that count as free: the table lacks them
  std::vector<std::string> explanation;  // the scheduler's
  planning::Plan plan;
  planning::Forecast timeline;  // the times of the first phase
  double forward_us = 0;
};

// The times when gradients are ready on the slowest rank, for one step or, with jitter, for several
// steps.
using ReadyTimes = std::vector<std::vector<double>>;
ReadyTimes ready_times(const ModelProfile& profile, const Cluster& cluster);

// A scheme on a model with given numbers of ranks and hosts. The links are not known yet.
class Rehearsal {
 public:
  // `file` and `profile` must outlive this object. Errors come from the plugins and name the
  // scheme.
  static Result<Rehearsal> make(const SchemeFile& file, const ModelProfile& profile,
                                const Cluster& cluster);

  // `ready`: ready_times() of this profile and `cluster`. The cluster must have as many ranks and
  // hosts as the one of make().
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
  // The model of a step in which the gradients are ready at these times.
  planning::OwnedModel at(const std::vector<double>& ready_us, const Cluster& cluster,
                          planning::ModelEntries entries) const;
  // Sets plan and explanation of `outcome`.
  Status plan(const penstock_model& model, Prediction& outcome) const;
  // Sets times and bytes of `outcome` under its plan.
  void take_steps(const Cluster& cluster, const planning::ModelEntries& entries,
                  const ReadyTimes& ready, Prediction& outcome) const;
  // Shows the scheduler the predicted times as observation number `look`; true if it wants a new
  // plan.
  Result<bool> wants_new_plan(uint64_t look, const Prediction& outcome) const;
  Transports::Legs exchange(const Cluster& cluster, const planning::Bucket& bucket) const;
  PlannedBytes bytes_of(const planning::Bucket& bucket, uint32_t& rounds) const;

  const SchemeFile* file_;
  const ModelProfile* profile_;
  std::shared_ptr<const BoundScheme> bound_scheme_;
  std::shared_ptr<const Transports> transports_;
};

}  // namespace penstock::command
