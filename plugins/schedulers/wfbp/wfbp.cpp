// Wait-free back-propagation: every gradient travels alone, once it is ready.
// Source: Zhang et al., "Poseidon: An Efficient Communication Architecture for Distributed Deep
// Learning on GPU Clusters", USENIX ATC 2017.
#include <planning/scheduler.hpp>

namespace sdk = penstock::sdk;
namespace planning = penstock::planning;

namespace {

struct Wfbp : planning::Scheduler<Wfbp> {
  static constexpr const char* kName = "wfbp";
  static inline const sdk::OptionList options{};
  explicit Wfbp(const sdk::Options&) {}

  std::string reason(const penstock_model& model, const planning::Plan& made,
                     uint32_t phase) const {
    return sdk::text(
        n_buckets(made, phase), " buckets, ",
        planning::are_given(model) ? "as the frontend gave them" : "one for each gradient");
  }
};

}  // namespace

PENSTOCK_SCHEDULER(Wfbp, "scheduler/wfbp", "0.1.0",
                   "sends every gradient in its own bucket, as soon as it is ready",
                   "Zhang et al., Poseidon, USENIX ATC 2017");
