// RGMerge: in each merge phase all ranks merge an equal number of ready gradients. The number
// differs from phase to phase, so that collecting a buffer is hidden behind sending the buffer
// before it.
// Source: the public description of RGMerge (the FGBuff authors, 2024); neither its paper nor its
// code is available. The planner is ours.
#include <planning/scheduler.hpp>

#include "merging.hpp"

namespace sdk = penstock::sdk;
namespace planning = penstock::planning;

namespace {

constexpr size_t kMostLines = 40;  // lines of the explanation, per phase

class Rgmerge : public planning::MeasuringScheduler<Rgmerge> {
 public:
  static constexpr const char* kName = "rgmerge";
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
      sdk::real_option("caution", 4.0)
          .at_least(1)
          .at_most(100)
          .unit("factor")
          .summary("encoding is planned with this many times its measured time"),
      unmeasured_count_option("gradients in a bucket until times are measured")};

  explicit Rgmerge(const sdk::Options& values)
      : MeasuringScheduler(values, false,
                           static_cast<uint64_t>(values.integer("replan_observations"))),
        caution_(values.real("caution")) {}

  planning::Buckets planned_buckets(const penstock_model& model, uint32_t phase) const {
    return rgmerge::merged_buckets(model, phase, caution_);
  }

  // Explains the forecast, and for each merge phase which work hides which.
  void end_phase(const penstock_model& model, const planning::Plan& made, uint32_t phase,
                 sdk::PlanSink& sink) const {
    const planning::Forecast times = planning::forecast(made, model, phase);
    const std::string counts = planning::counts_text(made, phase);
    if (!planning::is_measured(model))
      return explain(sink, phase, "gradients per buffer ", counts, "; nothing is measured yet");
    explain(sink, phase, "gradients per buffer ", counts, "; forecast: backward ",
            whole(times.backward_end), " us, then ", whole(times.exposed_us),
            " us exposed; sending takes ", whole(times.exchange_us), " us");
    const size_t n_lines = std::min(times.buckets.size(), kMostLines);
    for (size_t i = 0; i < n_lines; ++i) explain_bucket(made, times, i, sink);
    if (n_lines < times.buckets.size())
      sink.explain(sdk::text("  and ", times.buckets.size() - n_lines, " further buffers"));
  }

  void end_plan(const penstock_model& model, const planning::Plan& made) {
    replanning().plan_made(planning::exposed_us(made, model), planning::is_measured(model));
  }

 private:
  static void explain_bucket(const planning::Plan& made, const planning::Forecast& times, size_t i,
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

  // Text of whole microseconds; a number that is too large for an integer stays text.
  static std::string whole(double us) {
    return us < 1e15 ? std::to_string(static_cast<int64_t>(us)) : "very many";
  }

  double caution_;
};

}  // namespace

PENSTOCK_SCHEDULER(
    Rgmerge, "scheduler/rgmerge", "0.1.0",
    "equal numbers of gradients on every rank, buffers sized so that collecting hides "
    "under sending; from RGMerge's description, the planner is ours",
    "RGMerge, by the authors of FGBuff, 2024: its description only");
