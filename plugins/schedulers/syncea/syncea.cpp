// SyncEA: all gradients in one bucket, sent once backward is over. What comparisons of schedulers
// call SyncEA, after Sync EASGD, which sends all layers as one message.
// Source: You, Buluc and Demmel, "Scaling Deep Learning on GPU and Knights Landing clusters", SC
// 2017: the one packed message per step, not the elastic averaging.
#include <penstock/scheduler.hpp>

#include <planning/model.hpp>
#include <planning/timeline.hpp>

namespace sdk = penstock::sdk;
namespace planning = penstock::planning;

namespace {

constexpr uint64_t kRoutes = planning::kWholeBucketRoutes;

using Buckets = std::vector<std::vector<uint64_t>>;

class SyncEa {
 public:
  static inline const sdk::OptionList options{};
  explicit SyncEa(const sdk::Options&) {}

  void describe(penstock_scheduler_traits& traits) const { traits.routes = kRoutes; }

  void plan(const penstock_model& model, sdk::PlanSink& sink) const {
    const std::string problem = planning::find_problem(model, kRoutes);
    if (!problem.empty()) throw sdk::invalid_argument("scheduler/syncea: ", problem);
    if (model.n_gradients == 0) return;
    const uint32_t route = planning::whole_bucket_route(model);
    for (uint32_t phase = 0; phase < model.period; ++phase) {
      planning::Plan made;
      for (const std::vector<uint64_t>& bucket : buckets_of(model, phase)) {
        sink.add_bucket(model, phase, bucket, route, PENSTOCK_LAUNCH_SET_COMPLETE);
        made.buckets.push_back(planning::whole_gradients(model, bucket, phase, route));
        made.buckets.back().launch = PENSTOCK_LAUNCH_SET_COMPLETE;
      }
      explain(model, made, phase, sink);
    }
  }

 private:
  // Given buckets are neither divided nor joined.
  static Buckets buckets_of(const penstock_model& model, uint32_t phase) {
    if ((model.flags & PENSTOCK_MODEL_GIVEN_BUCKETS) != 0) return planning::units(model, phase);
    std::vector<uint64_t> all = planning::taking_part(model, phase);
    return all.empty() ? Buckets{} : Buckets{std::move(all)};
  }

  static void explain(const penstock_model& model, const planning::Plan& made, uint32_t phase,
                      sdk::PlanSink& sink) {
    const bool given = (model.flags & PENSTOCK_MODEL_GIVEN_BUCKETS) != 0;
    std::string line =
        sdk::text("syncea: phase ", phase, ": ", made.buckets.size(),
                  given ? " buckets, as the frontend gave them" : " bucket for all gradients",
                  ", sent after backward");
    if ((model.flags & PENSTOCK_MODEL_MEASURED) != 0)
      line += sdk::text("; forecast: ", planning::timeline(made, model, phase).exposed_us,
                        " us exposed after backward");
    sink.explain(line);
  }
};

}  // namespace

PENSTOCK_SCHEDULER(SyncEa, "scheduler/syncea", "0.1.0",
                   "one bucket for all gradients, sent after backward; from the paper: one packed "
                   "message per step, not its elastic averaging",
                   "You, Buluc and Demmel, Scaling Deep Learning on GPU and Knights Landing "
                   "clusters (Sync EASGD), SC 2017");
