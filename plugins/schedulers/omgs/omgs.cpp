// OMGS-SGD: sparsified gradients are merged where that saves more of messages than it lets them
// wait, with sparsification delaying backward. Source: Shi et al., "Communication-Efficient
// Distributed Deep Learning with Merged Gradient Sparsification on GPUs", INFOCOM 2020; the
// published constants after the authors' code, github.com/HKBU-HPML/OMGS-SGD.
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

class Omgs {
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
      sdk::real_option("backward_s", 0.035237)
          .at_least(0)
          .unit("s")
          .summary("published: backward time of the whole model (default: ResNet-50)"),
      sdk::real_option("selection_s", 2.18896957e-10)
          .at_least(0)
          .unit("s")
          .summary("published: top-k of x entries takes this times x log2 x (default: a P102-100)"),
      sdk::real_option("density", 0.001)
          .above(0)
          .at_most(1)
          .unit("fraction")
          .summary("published: share of entries sent, as set in the compressor"),
      sdk::real_option("alpha_s", -1.0)
          .at_least(-1)
          .unit("s")
          .summary("published: start-up of one message; negative: that of 1 Gb/s Ethernet"),
      sdk::real_option("beta_s_per_byte", -1.0)
          .at_least(-1)
          .unit("s/byte")
          .summary("published: time per byte; negative: that of 1 Gb/s Ethernet")};

  explicit Omgs(const sdk::Options& values)
      : published_(values.choice("mode") == "published"),
        profile_steps_(static_cast<uint64_t>(values.integer("profile_steps"))),
        replanning_(profile_steps_, values.real("replan_factor")),
        unmeasured_count_(static_cast<uint64_t>(values.integer("unmeasured_count"))),
        constants_{values.real("backward_s"), values.real("selection_s"), values.real("density"),
                   values.real("alpha_s"), values.real("beta_s_per_byte")} {}

  void describe(penstock_scheduler_traits& traits) const {
    traits.routes = kRoutes;
    if (published_) return;
    traits.flags = PENSTOCK_SCHEDULER_MEASURES;
    traits.observe_every = static_cast<uint32_t>(profile_steps_);
  }

  void plan(const penstock_model& model, sdk::PlanSink& sink) {
    const std::string problem = planning::find_problem(model, kRoutes);
    if (!problem.empty()) throw sdk::invalid_argument("scheduler/omgs: ", problem);
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
    if (published_) return omgs::published_buckets(model, phase, constants_);
    if ((model.flags & PENSTOCK_MODEL_MEASURED) == 0)
      return planning::buckets_by_count(model, phase, unmeasured_count_);
    return omgs::planned_buckets(model, phase);
  }

  void explain(const penstock_model& model, const planning::Plan& made, uint32_t phase,
               sdk::PlanSink& sink) const {
    std::string reason = "nothing is measured yet";
    if ((model.flags & PENSTOCK_MODEL_GIVEN_BUCKETS) != 0)
      reason = "as the frontend gave them";
    else if (published_)
      reason = sdk::text("by the published constants for ", model.world, " ranks");
    else if ((model.flags & PENSTOCK_MODEL_MEASURED) != 0)
      reason = sdk::text("forecast: ", planning::timeline(made, model, phase).exposed_us,
                         " us exposed after backward");
    sink.explain(sdk::text("omgs: phase ", phase, ": gradients per bucket ",
                           planning::counts_text(made, phase), "; ", reason));
  }

  bool published_;
  uint64_t profile_steps_;
  planning::Replanning replanning_;
  uint64_t unmeasured_count_;
  omgs::PublishedConstants constants_;
};

}  // namespace

PENSTOCK_SCHEDULER(Omgs, "scheduler/omgs", "0.1.0",
                   "merges sparsified gradients where messages saved outweigh the wait; rule from "
                   "the paper, constants from the authors' code, measured times and new plans ours",
                   "Shi et al., Communication-Efficient Distributed Deep Learning with Merged "
                   "Gradient Sparsification on GPUs, INFOCOM 2020; github.com/HKBU-HPML/OMGS-SGD");
