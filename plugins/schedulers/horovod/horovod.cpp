// Horovod's tensor fusion with its cycles: gradients that become ready within one cycle share
// buckets of limited size. Source: Sergeev & Del Balso, "Horovod: fast and easy distributed deep
// learning in TensorFlow", arXiv:1802.05799, 2018, and Horovod 0.28 for the defaults.
#include "moving.hpp"

#include <planning/scheduler.hpp>
#include <planning/tuner.hpp>

#include <cmath>
#include <optional>

namespace sdk = penstock::sdk;
namespace planning = penstock::planning;

namespace {

class Horovod : public planning::Scheduler<Horovod> {
 public:
  static constexpr const char* kName = "horovod";
  static inline const sdk::OptionList options{
      sdk::integer_option("threshold_bytes", 134217728)
          .at_least(0)
          .unit("bytes")
          .summary("most bytes of payload in a bucket; 0 sends every gradient in its own bucket"),
      sdk::real_option("cycle_ms", 1)
          .above(0)
          .unit("ms")
          .summary("gradients share a bucket only if they are ready in one cycle"),
      sdk::integer_option("profile_steps", 5)
          .at_least(1)
          .at_most(1000000)
          .unit("steps")
          .summary("steps measured before cycles are planned, and in each later observation"),
      sdk::real_option("moved_share", 0.25)
          .above(0)
          .at_most(1)
          .unit("fraction")
          .summary("plan again when this share of the gradients is ready at other times, in two "
                   "successive observations"),
      sdk::bool_option("autotune", false)
          .summary("search for the threshold and the cycle with the shortest step, beginning with "
                   "the configured values")};

  explicit Horovod(const sdk::Options& values)
      : threshold_(static_cast<uint64_t>(values.integer("threshold_bytes"))),
        cycle_us_(values.real("cycle_ms") * 1000),
        profile_steps_(static_cast<uint64_t>(values.integer("profile_steps"))),
        moved_share_(values.real("moved_share")),
        moving_(profile_steps_, cycle_us_, moved_share_) {
    if (!values.boolean("autotune")) return;
    if (threshold_ == 0)
      throw sdk::invalid_argument(
          "scheduler/horovod: threshold_bytes is 0, which sends every gradient in its own bucket "
          "and leaves autotune nothing to search; set it above 0 or turn autotune off");
    tuner_.emplace(std::vector<planning::Tunable>{
        {static_cast<double>(threshold_), kLeastThreshold, kMostThreshold},
        {cycle_us_, kLeastCycle, kMostCycle}});
  }

  void describe(penstock_scheduler_traits& traits) const {
    Scheduler::describe(traits);
    traits.flags = PENSTOCK_SCHEDULER_MEASURES;
    traits.observe_every = static_cast<uint32_t>(profile_steps_);
  }

  planning::Buckets buckets(const penstock_model& model, uint32_t phase) const {
    const std::vector<uint64_t> gradients = planning::taking_part(model, phase);
    const std::vector<double> cycles = cycles_of(model, gradients);
    planning::Buckets buckets;
    uint64_t bucket_bytes = 0;
    for (size_t i = 0; i < gradients.size(); ++i) {
      const uint64_t bytes = planning::payload_bytes(*model.gradients[gradients[i]], phase);
      bucket_bytes = planning::saturating_add(bucket_bytes, bytes);
      if (i == 0 || threshold_ == 0 || bucket_bytes > threshold_ || cycles[i] != cycles[i - 1]) {
        buckets.emplace_back();
        bucket_bytes = bytes;
      }
      buckets.back().push_back(gradients[i]);
    }
    return buckets;
  }

  std::string reason(const penstock_model& model, const planning::Plan& made,
                     uint32_t phase) const {
    if (planning::are_given(model))
      return sdk::text(n_buckets(made, phase), " buckets, as the frontend gave them");
    const std::string size =
        sdk::text(n_buckets(made, phase), " buckets of at most ", threshold_, " bytes of payload");
    if (!planning::is_measured(model)) return size + "; nothing is measured yet";
    return sdk::text(size, ", of gradients that are ready in one ", cycle_us_, " us",
                     tuner_ ? "; " + tuner_->text() : "");
  }

  // If the buckets are given, there is nothing to tune. Cycles are known only once times are
  // measured.
  void end_plan(const penstock_model& model, const planning::Plan&) {
    moving_.plan_made(planning::is_measured(model));
    tunes_ = tuner_ && planning::is_measured(model) && !planning::are_given(model);
    if (tunes_) tuner_->plan_made();
  }

  uint32_t observe(const penstock_measurement& measurement) {
    if (!tunes_ || tuner_->is_done()) return moving_.decide(measurement);
    if (!tuner_->observe(measurement.step_us)) return PENSTOCK_KEEP_PLAN;
    threshold_ = static_cast<uint64_t>(tuner_->setting()[0]);
    cycle_us_ = tuner_->setting()[1];
    moving_ = Moving(profile_steps_, cycle_us_, moved_share_);
    return PENSTOCK_MAKE_NEW_PLAN;
  }

 private:
  // The limits of a search, unless it begins outside them. Horovod's own search excludes its
  // default.
  static constexpr double kLeastThreshold = 65536, kMostThreshold = 1073741824;  // bytes
  static constexpr double kLeastCycle = 100, kMostCycle = 100000;                // us

  // The cycle in which each gradient is ready, counted from the first cycle; all gradients are in
  // one cycle until times are measured. It is a floating-point number, because a time may be too
  // large for an integer.
  std::vector<double> cycles_of(const penstock_model& model,
                                const std::vector<uint64_t>& gradients) const {
    if (!planning::is_measured(model)) return std::vector<double>(gradients.size(), 0);
    std::vector<double> cycles = planning::ready_times(model, gradients);
    for (double& cycle : cycles) cycle = std::floor(cycle / cycle_us_);
    return cycles;
  }

  uint64_t threshold_;
  double cycle_us_;
  uint64_t profile_steps_;
  double moved_share_;
  Moving moving_;
  std::optional<planning::Tuner> tuner_;
  bool tunes_ = false;  // whether the plan in force is tuned
};

}  // namespace

PENSTOCK_SCHEDULER(Horovod, "scheduler/horovod", "0.1.0",
                   "joins gradients that are ready in one cycle, up to a byte limit",
                   "Sergeev & Del Balso, Horovod, arXiv:1802.05799, 2018");
