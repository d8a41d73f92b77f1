// Plans the cut into buckets that exposes the least time under the model, by a dynamic program over
// runs of gradients. MG-WFBP (Shi et al., INFOCOM 2019) answers this question by a rule that is
// exact under its cost model; the answers for the engine, sparse payloads and the route `split` are
// ours.
#include <planning/scheduler.hpp>

#include "planner.hpp"

namespace sdk = penstock::sdk;
namespace planning = penstock::planning;

namespace {

class Optimal : public planning::MeasuringScheduler<Optimal> {
 public:
  static constexpr const char* kName = "optimal";
  static constexpr uint64_t kRoutes =
      planning::kWholeBucketRoutes | planning::route_bit(PENSTOCK_ROUTE_SPLIT);
  static inline const sdk::OptionList options{
      profile_steps_option("steps measured before the plan is made, and in each later observation"),
      replan_factor_option(
          1.5, "plan again when the exposed time differs from the predicted time by this share"),
      sdk::integer_option("replan_observations", 2)
          .at_least(1)
          .at_most(1000000)
          .unit("observations")
          .summary("successive observations, of profile_steps each, in which the exposed time must "
                   "differ"),
      unmeasured_count_option("gradients in a bucket until times are measured")};

  explicit Optimal(const sdk::Options& values)
      : MeasuringScheduler(values, false,
                           static_cast<uint64_t>(values.integer("replan_observations"))) {}

  planning::Buckets planned_buckets(const penstock_model& model, uint32_t phase) const {
    optimal::Planned planned = optimal::least_exposed(model, phase, route(model));
    how_ = std::move(planned.how);
    return std::move(planned.buckets);
  }

  void end_phase(const penstock_model& model, const planning::Plan& made, uint32_t phase,
                 sdk::PlanSink& sink) const {
    const bool is_searched = planning::is_measured(model) && !planning::are_given(model);
    explain(sink, phase, reason(model, made, phase), is_searched ? "; " + how_ : "");
    if (route(model) == PENSTOCK_ROUTE_SPLIT)
      planning::add_split_messages(sink, phase, static_cast<uint32_t>(n_buckets(made, phase)));
  }

  void end_plan(const penstock_model& model, const planning::Plan& made) {
    replanning().plan_made(planning::exposed_us(made, model), planning::is_measured(model));
  }

 private:
  mutable std::string how_;  // the result text of the phase that was searched last
};

}  // namespace

PENSTOCK_SCHEDULER(
    Optimal, "scheduler/optimal", "0.1.0",
    "buckets that leave the least exchange exposed under the model, by dynamic programming",
    "the question: Shi et al., MG-WFBP, INFOCOM 2019; the search is ours");
