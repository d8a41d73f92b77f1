// Wait-free back-propagation: every gradient travels alone, as soon as it is ready.
// Source: Zhang et al., "Poseidon: An Efficient Communication Architecture for Distributed Deep
// Learning on GPU Clusters", USENIX ATC 2017.
#include <penstock/scheduler.hpp>

#include <planning/model.hpp>

namespace sdk = penstock::sdk;
namespace planning = penstock::planning;

namespace {

constexpr uint64_t kRoutes = planning::kWholeBucketRoutes;

class Wfbp {
 public:
  static inline const sdk::OptionList options{};
  explicit Wfbp(const sdk::Options&) {}

  void describe(penstock_scheduler_traits& traits) const { traits.routes = kRoutes; }

  void plan(const penstock_model& model, sdk::PlanSink& sink) const {
    const std::string problem = planning::find_problem(model, kRoutes);
    if (!problem.empty()) throw sdk::invalid_argument("scheduler/wfbp: ", problem);
    if (model.n_gradients == 0) return;
    const uint32_t route = planning::whole_bucket_route(model);
    for (uint32_t phase = 0; phase < model.period; ++phase) {
      const auto units = planning::units(model, phase);
      for (const std::vector<uint64_t>& unit : units)
        sink.add_bucket(model, phase, unit, route, PENSTOCK_LAUNCH_READY);
      sink.explain(sdk::text("wfbp: phase ", phase, ": ", units.size(), " buckets, ",
                             (model.flags & PENSTOCK_MODEL_GIVEN_BUCKETS) != 0
                                 ? "as the frontend gave them"
                                 : "one for each gradient"));
    }
  }
};

}  // namespace

PENSTOCK_SCHEDULER(Wfbp, "scheduler/wfbp", "0.1.0",
                   "sends every gradient alone, as soon as it is ready",
                   "Zhang et al., Poseidon, USENIX ATC 2017");
