// DeAR: reduce-scatter during backward, all-gather during the next forward.
// Source: Zhang et al., "DeAR: Accelerating Distributed Deep Learning with Fine-Grained All-Reduce
// Pipelining", ICDCS 2023.
#include <planning/scheduler.hpp>
#include <planning/tuner.hpp>

#include <optional>

namespace sdk = penstock::sdk;
namespace planning = penstock::planning;

namespace {

// The part of a parameter's name before its last dot: parameters that share it belong to one
// module.
std::string_view module_of(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view{} : name.substr(0, dot);
}

using Gradients = std::vector<uint64_t>;

// Joins neighbours in forward order that belong to one module, because the next forward needs them
// together.
std::vector<Gradients> modules(const penstock_model& model, const Gradients& forward) {
  std::vector<Gradients> result;
  std::string_view last;
  for (uint64_t gradient : forward) {
    const std::string_view module = module_of(sdk::view(model.gradients[gradient]->name));
    if (result.empty() || module.empty() || module != last) result.emplace_back();
    result.back().push_back(gradient);
    last = module;
  }
  return result;
}

class Dear : public planning::Scheduler<Dear> {
 public:
  static constexpr const char* kName = "dear";
  static constexpr uint64_t kRoutes = planning::route_bit(PENSTOCK_ROUTE_SPLIT);
  static uint32_t route(const penstock_model&) { return PENSTOCK_ROUTE_SPLIT; }
  static inline const sdk::OptionList options{
      sdk::integer_option("threshold_bytes", 26214400)
          .at_least(0)
          .unit("bytes")
          .summary("most uncompressed bytes in a group of modules; 0 makes every module a group"),
      sdk::bool_option("autotune", false)
          .summary("search for the threshold with the shortest step, beginning with the configured "
                   "threshold"),
      sdk::integer_option("profile_steps", 5)
          .at_least(1)
          .at_most(1000000)
          .unit("steps")
          .summary("steps in an observation while autotune searches; three observations try a "
                   "threshold")};

  explicit Dear(const sdk::Options& values)
      : threshold_(static_cast<uint64_t>(values.integer("threshold_bytes"))),
        profile_steps_(static_cast<uint32_t>(values.integer("profile_steps"))) {
    if (!values.boolean("autotune")) return;
    if (threshold_ == 0)
      throw sdk::invalid_argument(
          "scheduler/dear: threshold_bytes is 0, which makes every module a group and leaves "
          "autotune nothing to search; set it above 0 or turn autotune off");
    tuner_.emplace(std::vector<planning::Tunable>{
        {static_cast<double>(threshold_), kLeastThreshold, kMostThreshold}});
  }

  void describe(penstock_scheduler_traits& traits) const {
    Scheduler::describe(traits);
    traits.flags = PENSTOCK_SCHEDULER_LAUNCHES_IN_FORWARD;
    if (!tuner_) return;
    traits.flags |= PENSTOCK_SCHEDULER_MEASURES;
    traits.observe_every = profile_steps_;
  }

  planning::Buckets buckets(const penstock_model& model, uint32_t phase) const {
    return in_order_of_completion(model, groups(model, phase));
  }
  void end_phase(const penstock_model&, const planning::Plan& made, uint32_t phase,
                 sdk::PlanSink& sink) const {
    const auto n_groups = static_cast<uint32_t>(n_buckets(made, phase));
    explain(sink, phase, n_groups, " groups, reduced in backward and gathered in the next forward",
            tuner_ ? "; " + tuner_->text() : "");
    planning::add_split_messages(sink, phase, n_groups);
  }

  // If the buckets are given, there is nothing to tune.
  void end_plan(const penstock_model& model, const planning::Plan&) {
    tunes_ = tuner_ && !planning::are_given(model);
    if (tunes_) tuner_->plan_made();
  }

  uint32_t observe(const penstock_measurement& measurement) {
    if (!tunes_ || !tuner_->observe(measurement.step_us)) return PENSTOCK_KEEP_PLAN;
    threshold_ = static_cast<uint64_t>(tuner_->setting()[0]);
    return PENSTOCK_MAKE_NEW_PLAN;
  }

 private:
  // Groups modules in forward order, greedily up to the threshold.
  std::vector<Gradients> groups(const penstock_model& model, uint32_t phase) const {
    std::vector<bool> present(model.n_gradients, false);
    for (uint64_t gradient : planning::taking_part(model, phase)) present[gradient] = true;
    Gradients forward = planning::forward_order(model);
    std::erase_if(forward, [&](uint64_t gradient) { return !present[gradient]; });

    planning::Buckets result;
    uint64_t group_bytes = 0;
    for (const Gradients& module : modules(model, forward)) {
      uint64_t bytes = 0;
      for (uint64_t gradient : module)
        bytes = planning::saturating_add(bytes, model.gradients[gradient]->bytes);
      const uint64_t joined = planning::saturating_add(group_bytes, bytes);
      if (result.empty() || threshold_ == 0 || joined > threshold_) {
        result.emplace_back();
        group_bytes = 0;
      }
      result.back().insert(result.back().end(), module.begin(), module.end());
      group_bytes = planning::saturating_add(group_bytes, bytes);
    }
    return result;
  }

  // Sorts groups by the time at which backward reaches their last gradient; the first is normally
  // the last group of forward.
  static planning::Buckets in_order_of_completion(const penstock_model& model,
                                                  planning::Buckets groups) {
    std::vector<uint64_t> place(model.n_gradients);
    for (uint64_t i = 0; i < model.n_gradients; ++i) place[model.order[i]] = i;
    const auto completion = [&](const Gradients& group) {
      uint64_t last = 0;
      for (uint64_t gradient : group) last = std::max(last, place[gradient]);
      return last;
    };
    std::sort(groups.begin(), groups.end(), [&](const Gradients& a, const Gradients& b) {
      return completion(a) < completion(b);
    });
    return groups;
  }

  // The limits of a search, unless it begins outside them.
  static constexpr double kLeastThreshold = 65536, kMostThreshold = 1073741824;  // bytes

  uint64_t threshold_;
  uint32_t profile_steps_;
  std::optional<planning::Tuner> tuner_;
  bool tunes_ = false;  // whether the plan in force is tuned
};

}  // namespace

PENSTOCK_SCHEDULER(Dear, "scheduler/dear", "0.1.0",
                   "reduce-scatter in backward, all-gather in the next forward",
                   "Zhang et al., DeAR, ICDCS 2023");
