// FGBuff: buckets by number of gradients, each as long as it takes to send the one before it.
// Source: FGBuff, github.com/ATC24-FGBuff/FGBuff, 2024: no paper is known to us, the method was
// read from the code.
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

class Fgbuff {
 public:
  static inline const sdk::OptionList options{
      sdk::choice_option("mode", "planned", {"planned", "published"})
          .summary("planned: from measured times; published: the original's constants"),
      sdk::integer_option("profile_steps", 5)
          .at_least(1)
          .at_most(1000000)
          .unit("steps")
          .summary("planned: steps measured before the plan is made, and between two looks at it"),
      sdk::real_option("replan_factor", 2.0)
          .above(1)
          .unit("factor")
          .summary("planned: plan again when the exposed time has changed by this much"),
      sdk::integer_option("first_count", 4)
          .at_least(1)
          .unit("gradients")
          .summary("planned: most gradients in the first bucket"),
      sdk::integer_option("unmeasured_count", 16)
          .at_least(1)
          .unit("gradients")
          .summary("planned: gradients in a bucket as long as nothing is measured"),
      sdk::real_option("backward_s", 0.035237)
          .at_least(0)
          .unit("s")
          .summary("published: backward time of the whole model (default: ResNet-50)"),
      sdk::real_option("startup_s", 3.780956e-3)
          .at_least(0)
          .unit("s")
          .summary("published: start-up time of one collective"),
      sdk::real_option("slack_s", 0.0)
          .at_least(0)
          .unit("s")
          .summary("published: backward time a group may wait beyond the start-ups it saves"),
      sdk::real_option("density", 0.1)
          .above(0)
          .at_most(1)
          .unit("fraction")
          .summary("published: share of entries sent, as set in the compressor"),
      sdk::bool_option("accumulator_reset", false)
          .summary("published: reset the collecting time for each buffer, as was meant")};

  explicit Fgbuff(const sdk::Options& values)
      : published_(values.choice("mode") == "published"),
        profile_steps_(static_cast<uint64_t>(values.integer("profile_steps"))),
        replanning_(profile_steps_, values.real("replan_factor")),
        first_count_(static_cast<uint64_t>(values.integer("first_count"))),
        unmeasured_count_(static_cast<uint64_t>(values.integer("unmeasured_count"))),
        constants_{values.real("backward_s"), values.real("startup_s"), values.real("slack_s"),
                   values.real("density"), values.boolean("accumulator_reset")} {}

  void describe(penstock_scheduler_traits& traits) const {
    traits.routes = kRoutes;
    if (published_) return;
    traits.flags = PENSTOCK_SCHEDULER_MEASURES;
    traits.observe_every = static_cast<uint32_t>(profile_steps_);
  }

  void plan(const penstock_model& model, sdk::PlanSink& sink) {
    const std::string problem = planning::find_problem(model, kRoutes);
    if (!problem.empty()) throw sdk::invalid_argument("scheduler/fgbuff: ", problem);
    replanning_.plan_made();
    if (model.n_gradients == 0) return;
    const uint32_t route = planning::whole_bucket_route(model);
    planning::Plan made;
    for (uint32_t phase = 0; phase < model.period; ++phase) {
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
    if (published_) return published_buckets(model, phase);
    if ((model.flags & PENSTOCK_MODEL_MEASURED) == 0)
      return planning::buckets_by_count(model, phase, unmeasured_count_);
    return fgbuff::planned_buckets(model, phase, first_count_);
  }

  Buckets published_buckets(const penstock_model& model, uint32_t phase) const {
    const std::vector<uint64_t> gradients = planning::taking_part(model, phase);
    std::vector<uint64_t> sizes;
    for (uint64_t gradient : gradients) sizes.push_back(model.gradients[gradient]->numel);
    return planning::runs_of(gradients, fgbuff::published_counts(sizes, constants_));
  }

  void explain(const penstock_model& model, const planning::Plan& made, uint32_t phase,
               sdk::PlanSink& sink) const {
    const bool measured = !published_ && (model.flags & PENSTOCK_MODEL_MEASURED) != 0;
    std::string reason = published_ ? "by the published constants" : "nothing is measured yet";
    if (measured)
      reason = sdk::text("forecast: ", planning::timeline(made, model, phase).exposed_us,
                         " us exposed after backward");
    sink.explain(sdk::text("fgbuff: phase ", phase, ": gradients per bucket ",
                           planning::counts_text(made, phase), "; ", reason));
  }

  bool published_;
  uint64_t profile_steps_;
  planning::Replanning replanning_;
  uint64_t first_count_;
  uint64_t unmeasured_count_;
  fgbuff::PublishedConstants constants_;
};

}  // namespace

PENSTOCK_SCHEDULER(Fgbuff, "scheduler/fgbuff", "0.1.0",
                   "buckets by number of gradients, each filled while the one before it is sent",
                   "FGBuff, github.com/ATC24-FGBuff/FGBuff, 2024");
