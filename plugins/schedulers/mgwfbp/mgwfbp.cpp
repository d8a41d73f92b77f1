// MG-WFBP: a gradient is merged with the next one while that saves more start-up than it waits.
// Source: Shi, Chu and Li, "MG-WFBP: Efficient Data Communication for Distributed Synchronous SGD
// Algorithms", INFOCOM 2019; the order of its steps and the published lines after the authors'
// code, github.com/HKBU-HPML/MG-WFBP.
#include <penstock/scheduler.hpp>

#include <planning/model.hpp>
#include <planning/replanning.hpp>
#include <planning/timeline.hpp>

#include "planned.hpp"
#include "published.hpp"

namespace sdk = penstock::sdk;
namespace planning = penstock::planning;

namespace {

constexpr uint64_t kRoutes = planning::kWholeBucketRoutes;

using Buckets = std::vector<std::vector<uint64_t>>;

class MgWfbp {
 public:
  static inline const sdk::OptionList options{
      sdk::choice_option("mode", "planned", {"planned", "published"})
          .summary("planned: from measured times; published: the authors' constants"),
      sdk::integer_option("profile_steps", 5)
          .at_least(1)
          .at_most(1000000)
          .unit("steps")
          .summary("planned: steps measured before the plan is made, and between two looks at it"),
      sdk::real_option("replan_factor", 2.0)
          .above(1)
          .unit("factor")
          .summary("planned: plan again when the exposed time has changed by this much"),
      sdk::integer_option("unmeasured_count", 16)
          .at_least(1)
          .unit("gradients")
          .summary("planned: gradients in a bucket as long as nothing is measured"),
      sdk::choice_option("network", "10GbE", {"10GbE", "56GbIB"})
          .summary("published: whose start-up and speed, by number of ranks"),
      sdk::real_option("backward_s", 0.035237)
          .at_least(0)
          .unit("s")
          .summary("published: backward time of the whole model (default: ResNet-50)"),
      sdk::real_option("alpha_s", -1.0)
          .at_least(-1)
          .unit("s")
          .summary("published: start-up of one message; negative: that of the network"),
      sdk::real_option("beta_s_per_byte", -1.0)
          .at_least(-1)
          .unit("s/byte")
          .summary("published: time per byte; negative: that of the network")};

  explicit MgWfbp(const sdk::Options& values)
      : published_(values.choice("mode") == "published"),
        profile_steps_(static_cast<uint64_t>(values.integer("profile_steps"))),
        replanning_(profile_steps_, values.real("replan_factor")),
        unmeasured_count_(static_cast<uint64_t>(values.integer("unmeasured_count"))),
        constants_{values.real("backward_s"), values.choice("network") == "56GbIB",
                   values.real("alpha_s"), values.real("beta_s_per_byte")} {}

  void describe(penstock_scheduler_traits& traits) const {
    traits.routes = kRoutes;
    if (published_) return;
    traits.flags = PENSTOCK_SCHEDULER_MEASURES;
    traits.observe_every = static_cast<uint32_t>(profile_steps_);
  }

  void plan(const penstock_model& model, sdk::PlanSink& sink) {
    const std::string problem = planning::find_problem(model, kRoutes);
    if (!problem.empty()) throw sdk::invalid_argument("scheduler/mgwfbp: ", problem);
    replanning_.plan_made();
    if (model.n_gradients == 0) return;
    const uint32_t route = planning::whole_bucket_route(model);
    for (uint32_t phase = 0; phase < model.period; ++phase) {
      planning::Plan made;
      for (const std::vector<uint64_t>& bucket : buckets_of(model, phase)) {
        sink.add_bucket(model, phase, bucket, route, PENSTOCK_LAUNCH_READY);
        made.buckets.push_back(planning::whole_gradients(model, bucket, phase, route));
      }
      explain(model, made, phase, sink);
    }
  }

  uint32_t observe(const penstock_measurement& measurement) {
    return published_ ? uint32_t{PENSTOCK_KEEP_PLAN} : replanning_.decide(measurement);
  }

 private:
  Buckets buckets_of(const penstock_model& model, uint32_t phase) const {
    if ((model.flags & PENSTOCK_MODEL_GIVEN_BUCKETS) != 0) return planning::units(model, phase);
    if (published_) return mgwfbp::published_buckets(model, phase, constants_);
    if ((model.flags & PENSTOCK_MODEL_MEASURED) == 0)
      return planning::buckets_by_count(model, phase, unmeasured_count_);
    return mgwfbp::planned_buckets(model, phase);
  }

  void explain(const penstock_model& model, const planning::Plan& made, uint32_t phase,
               sdk::PlanSink& sink) const {
    const planning::PublishedLink line = mgwfbp::line_for(constants_, model.world);
    std::string reason = "nothing is measured yet";
    if ((model.flags & PENSTOCK_MODEL_GIVEN_BUCKETS) != 0)
      reason = "as the frontend gave them";
    else if (published_)
      reason = sdk::text("published: ", 1e6 * line.startup_s, " us + ", 1e9 * line.s_per_byte,
                         " us per kB for ", model.world, " ranks");
    else if ((model.flags & PENSTOCK_MODEL_MEASURED) != 0)
      reason = sdk::text("forecast: ", planning::timeline(made, model, phase).exposed_us,
                         " us exposed after backward");
    sink.explain(sdk::text("mgwfbp: phase ", phase, ": gradients per bucket ",
                           planning::counts_text(made, phase), "; ", reason));
  }

  bool published_;
  uint64_t profile_steps_;
  planning::Replanning replanning_;
  uint64_t unmeasured_count_;
  mgwfbp::PublishedConstants constants_;
};

}  // namespace

PENSTOCK_SCHEDULER(MgWfbp, "scheduler/mgwfbp", "0.1.0",
                   "merges gradients while that saves more start-up than it waits; rule from the "
                   "paper, tables from the authors' code, measured times and new plans ours",
                   "Shi, Chu and Li, MG-WFBP, INFOCOM 2019; github.com/HKBU-HPML/MG-WFBP");
