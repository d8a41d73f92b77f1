// Espresso: for each gradient whether and by what it is compressed, and by which route it travels.
// Source: Wang et al., "Hi-Speed DNN Training with Espresso: Unleashing the Full Potential of
// Gradient Compression with Near-Optimal Usage Strategies", EuroSys 2023: the timeline, the
// elimination of what is hidden, and the greedy selection from large gradients to small ones.
#include <planning/choosing.hpp>

#include <map>

#include "selecting.hpp"

namespace sdk = penstock::sdk;
namespace planning = penstock::planning;

namespace {

const char* name_of(uint32_t route) {
  return route == PENSTOCK_ROUTE_HIERARCHICAL ? "hierarchical"
         : route == PENSTOCK_ROUTE_SHARD      ? "shard"
                                              : "flat";
}

class Espresso {
 public:
  static constexpr uint64_t kRoutes = planning::kWholeBucketRoutes;
  static inline const sdk::OptionList options{
      sdk::string_option("dense", "none")
          .summary("compressor instance, among the candidates, of gradients that stay dense"),
      sdk::integer_option("small_elements", 16384)
          .at_least(0)
          .unit("elements")
          .summary("gradients of fewer stay dense, joined until they have as many"),
      sdk::integer_option("profile_steps", 5)
          .at_least(1)
          .at_most(1000000)
          .unit("steps")
          .summary("steps, for each candidate, in which they are measured before any is chosen")};

  explicit Espresso(const sdk::Options& values)
      : dense_(values.string("dense")),
        small_(static_cast<uint64_t>(values.integer("small_elements"))),
        profile_steps_(static_cast<uint64_t>(values.integer("profile_steps"))) {}

  void describe(penstock_scheduler_traits& traits) const {
    traits.routes = kRoutes;
    traits.flags = PENSTOCK_SCHEDULER_MEASURES | PENSTOCK_SCHEDULER_CHOOSES;
    traits.observe_every = static_cast<uint32_t>(profile_steps_);
  }

  void plan(const penstock_model& model, sdk::PlanSink& sink) {
    planning::require_plannable(model, kRoutes, "espresso");
    planning::require_candidate(model, dense_, "espresso");
    rests_ = true;
    if (model.n_gradients == 0) return;
    planning::Plan plan;
    if (planning::has_choice(model, dense_) && planning::are_all_measured(model)) {
      const espresso::Strategies strategies(model, dense_, small_);
      const espresso::Selection selection = espresso::select(strategies);
      plan = strategies.plan_of(selection.strategy);
      plan.explanation = {words(strategies, selection)};
    } else {
      rests_ = !planning::has_choice(model, dense_);
      plan = planning::probing_plan(model);
      plan.explanation = {planning::probing_words(model, plan, dense_, "espresso")};
    }
    planning::write(plan, sink);
  }

  // A new plan as long as candidates are being measured.
  uint32_t observe(const penstock_measurement& measurement) const {
    const bool waits = rests_ || measurement.step < profile_steps_;
    return waits ? PENSTOCK_KEEP_PLAN : PENSTOCK_MAKE_NEW_PLAN;
  }

 private:
  static std::string words(const espresso::Strategies& strategies,
                           const espresso::Selection& selection) {
    std::map<size_t, uint64_t> gradients;  // by way
    for (size_t unit = 0; unit < strategies.units().size(); ++unit)
      gradients[selection.strategy[unit]] += strategies.units()[unit].gradients.size();
    std::string line = "espresso:";
    for (const auto& [way, count] : gradients)
      line += sdk::text(line.back() == ':' ? " " : ", ", count, " gradients '",
                        strategies.ways()[way].compressor, "' on route ",
                        name_of(strategies.ways()[way].route));
    return line + sdk::text("; forecast ", selection.exposed_us,
                            " us exposed after backward, all dense ", selection.dense_us, ", ",
                            selection.n_tried, " strategies compared");
  }

  std::string dense_;
  uint64_t small_;
  uint64_t profile_steps_;
  bool rests_ = true;  // the plan in force is one that stays
};

}  // namespace

PENSTOCK_SCHEDULER(Espresso, "scheduler/espresso", "0.1.0",
                   "chooses compressor and route of each gradient by a forecast of the whole step",
                   "Wang et al., Espresso, EuroSys 2023");
