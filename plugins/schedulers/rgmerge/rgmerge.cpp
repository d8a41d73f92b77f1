// RGMerge: every rank merges the same number of ready gradients in each merge phase; how many
// differs from phase to phase, so that collecting a buffer hides under sending the one before it.
// Source: the public description of RGMerge (the FGBuff authors, 2024); neither its paper nor its
// code is to be had. The planner is ours.
#include <penstock/scheduler.hpp>

#include <planning/model.hpp>
#include <planning/timeline.hpp>

#include "expectation.hpp"
#include "merging.hpp"

namespace sdk = penstock::sdk;
namespace planning = penstock::planning;

namespace {

constexpr uint64_t kRoutes = planning::kWholeBucketRoutes;

constexpr size_t kMostLines = 40;  // of the explanation, per phase

using Buckets = std::vector<std::vector<uint64_t>>;

class Rgmerge {
 public:
  static inline const sdk::OptionList options{
      sdk::integer_option("profile_steps", 5)
          .at_least(1)
          .at_most(1000000)
          .unit("steps")
          .summary("steps measured before the plan is made, and between two looks at it"),
      sdk::real_option("replan_factor", 1.5)
          .above(1)
          .unit("factor")
          .summary("plan again when the exposed time has left what was expected by this much"),
      sdk::integer_option("replan_looks", 2)
          .at_least(1)
          .at_most(1000000)
          .unit("looks")
          .summary("looks in a row, of profile_steps each, in which it must have left it"),
      sdk::real_option("caution", 4.0)
          .at_least(1)
          .at_most(100)
          .unit("factor")
          .summary("encoding is planned with this many times its measured time"),
      sdk::integer_option("unmeasured_count", 16)
          .at_least(1)
          .unit("gradients")
          .summary("gradients in a bucket as long as nothing is measured")};

  explicit Rgmerge(const sdk::Options& values)
      : profile_steps_(static_cast<uint64_t>(values.integer("profile_steps"))),
        unmeasured_count_(static_cast<uint64_t>(values.integer("unmeasured_count"))),
        caution_(values.real("caution")),
        expectation_(values.real("replan_factor"),
                     static_cast<uint64_t>(values.integer("replan_looks"))) {}

  void describe(penstock_scheduler_traits& traits) const {
    traits.routes = kRoutes;
    traits.flags = PENSTOCK_SCHEDULER_MEASURES;
    traits.observe_every = static_cast<uint32_t>(profile_steps_);
  }

  void plan(const penstock_model& model, sdk::PlanSink& sink) {
    const std::string problem = planning::find_problem(model, kRoutes);
    if (!problem.empty()) throw sdk::invalid_argument("scheduler/rgmerge: ", problem);
    if (model.n_gradients == 0) return;
    const uint32_t route = planning::whole_bucket_route(model);
    planning::Plan made;
    for (uint32_t phase = 0; phase < model.period; ++phase)
      for (const std::vector<uint64_t>& bucket : buckets_of(model, phase)) {
        sink.add_bucket(model, phase, bucket, route, PENSTOCK_LAUNCH_READY);
        made.buckets.push_back(planning::whole_gradients(model, bucket, phase, route));
      }
    for (uint32_t phase = 0; phase < model.period; ++phase) explain(model, made, phase, sink);
    expectation_.expect(planning::exposed_us(made, model), is_measured(model));
  }

  uint32_t observe(const penstock_measurement& measurement) {
    if (measurement.step < profile_steps_) return PENSTOCK_KEEP_PLAN;
    return expectation_.decide(measurement);
  }

 private:
  static bool is_measured(const penstock_model& model) {
    return (model.flags & PENSTOCK_MODEL_MEASURED) != 0;
  }

  Buckets buckets_of(const penstock_model& model, uint32_t phase) const {
    if ((model.flags & PENSTOCK_MODEL_GIVEN_BUCKETS) != 0) return planning::units(model, phase);
    if (!is_measured(model)) return planning::buckets_by_count(model, phase, unmeasured_count_);
    return rgmerge::merged_buckets(model, phase, caution_);
  }

  // The forecast, and for each merge phase what hides what.
  static void explain(const penstock_model& model, const planning::Plan& made, uint32_t phase,
                      sdk::PlanSink& sink) {
    const planning::Timeline times = planning::timeline(made, model, phase);
    const std::string counts = planning::counts_text(made, phase);
    if (!is_measured(model)) {
      sink.explain(sdk::text("rgmerge: phase ", phase, ": gradients per buffer ", counts,
                             "; nothing is measured yet"));
      return;
    }
    sink.explain(sdk::text("rgmerge: phase ", phase, ": gradients per buffer ", counts,
                           "; forecast: backward ", whole(times.backward_end), " us, then ",
                           whole(times.exposed_us), " us exposed; sending takes ",
                           whole(times.exchange_us), " us"));
    const size_t n_lines = std::min(times.buckets.size(), kMostLines);
    for (size_t i = 0; i < n_lines; ++i) explain_bucket(made, times, i, sink);
    if (n_lines < times.buckets.size())
      sink.explain(sdk::text("  and ", times.buckets.size() - n_lines, " further buffers"));
  }

  static void explain_bucket(const planning::Plan& made, const planning::Timeline& times, size_t i,
                             sdk::PlanSink& sink) {
    const planning::BucketTimes& bucket = times.buckets[i];
    const double begins = i == 0 ? 0 : times.buckets[i - 1].ready;
    const double waits = bucket.exchange_start - bucket.encode_end;
    const double exposed =
        std::max(0.0, bucket.exchange_end - std::max(bucket.exchange_start, times.backward_end));
    std::string fate =
        exposed <= 0 ? "under backward" : sdk::text(whole(exposed), " us of it after backward");
    if (waits > 0) fate += sdk::text(", after ", whole(waits), " us for the buffer before it");
    sink.explain(sdk::text("  buffer ", i, ": ", made.buckets[bucket.bucket].pieces.size(),
                           " gradients collected from ", whole(begins), " to ", whole(bucket.ready),
                           " us, encoded until ", whole(bucket.encode_end), ", sent from ",
                           whole(bucket.exchange_start), " to ", whole(bucket.exchange_end), ", ",
                           fate));
  }

  // Microseconds for people: parts of one are noise, and a number beyond all counting stays text.
  static std::string whole(double us) {
    return us < 1e15 ? std::to_string(static_cast<int64_t>(us)) : "very many";
  }

  uint64_t profile_steps_;
  uint64_t unmeasured_count_;
  double caution_;
  rgmerge::Expectation expectation_;
};

}  // namespace

PENSTOCK_SCHEDULER(
    Rgmerge, "scheduler/rgmerge", "0.1.0",
    "equal numbers of gradients on every rank, buffers sized so that collecting hides "
    "under sending; from RGMerge's description, the planner is ours",
    "RGMerge, by the authors of FGBuff, 2024: its description only");
