// Espresso: decides for each gradient whether it is compressed, by which compressor, and by which
// route it travels.
// Source: Wang et al., "Hi-Speed DNN Training with Espresso: Unleashing the Full Potential of
// Gradient Compression with Near-Optimal Usage Strategies", EuroSys 2023: the timeline, the
// elimination of hidden gradients, and the greedy selection from large gradients to small ones.
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

class Espresso : public planning::ChoosingScheduler<Espresso> {
 public:
  static constexpr const char* kName = "espresso";
  static inline const sdk::OptionList options{
      dense_option(),
      sdk::integer_option("small_elements", 16384)
          .at_least(0)
          .unit("elements")
          .summary("gradients with fewer elements stay dense and are joined until they have this "
                   "number"),
      profile_steps_option()};

  explicit Espresso(const sdk::Options& values)
      : ChoosingScheduler(values),
        small_(static_cast<uint64_t>(values.integer("small_elements"))) {}

  // All candidates, not only two.
  bool all_measured(const penstock_model& model) const { return planning::are_all_measured(model); }
  planning::Plan probe(const penstock_model& model) const {
    planning::Plan plan = planning::probing_plan(model);
    plan.explanation = {planning::probing_words(model, plan, dense(), kName)};
    return plan;
  }

  planning::Plan choose(const penstock_model& model) const {
    const espresso::Strategies strategies(model, dense(), small_);
    const espresso::Selection selection = espresso::select(strategies);
    planning::Plan plan = strategies.plan_of(selection.strategy);
    plan.explanation = {words(strategies, selection)};
    return plan;
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

  uint64_t small_;
};

}  // namespace

PENSTOCK_SCHEDULER(Espresso, "scheduler/espresso", "0.1.0",
                   "chooses compressor and route of each gradient by a forecast of the whole step",
                   "Wang et al., Espresso, EuroSys 2023");
