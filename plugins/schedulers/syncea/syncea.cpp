// SyncEA: all gradients in one bucket, sent once backward is over. Comparisons of schedulers call
// this SyncEA, after Sync EASGD, which sends all layers as one message.
// Source: You, Buluc and Demmel, "Scaling Deep Learning on GPU and Knights Landing clusters", SC
// 2017: only the one packed message per step, not the elastic averaging.
#include <planning/scheduler.hpp>

namespace sdk = penstock::sdk;
namespace planning = penstock::planning;

namespace {

class SyncEa : public planning::Scheduler<SyncEa> {
 public:
  static constexpr const char* kName = "syncea";
  static constexpr uint32_t kLaunch = PENSTOCK_LAUNCH_SET_COMPLETE;
  static inline const sdk::OptionList options{};
  explicit SyncEa(const sdk::Options&) {}

  planning::Buckets buckets(const penstock_model& model, uint32_t phase) const {
    std::vector<uint64_t> all = planning::taking_part(model, phase);
    return all.empty() ? planning::Buckets{} : planning::Buckets{std::move(all)};
  }
  std::string reason(const penstock_model& model, const planning::Plan& made,
                     uint32_t phase) const {
    return sdk::text(n_buckets(made, phase),
                     planning::are_given(model) ? " buckets, as the frontend gave them"
                                                : " bucket for all gradients",
                     ", sent after backward",
                     planning::is_measured(model) ? "; " + forecast(model, made, phase) : "");
  }
};

}  // namespace

PENSTOCK_SCHEDULER(SyncEa, "scheduler/syncea", "0.1.0",
                   "one bucket for all gradients, sent after backward; from the paper: one packed "
                   "message per step, not its elastic averaging",
                   "You, Buluc and Demmel, Scaling Deep Learning on GPU and Knights Landing "
                   "clusters (Sync EASGD), SC 2017");
