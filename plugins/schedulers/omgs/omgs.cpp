// OMGS-SGD: sparsified gradients are merged if this saves more message time than the messages wait;
// sparsification delays backward. Source: Shi et al., "Communication-Efficient Distributed Deep
// Learning with Merged Gradient Sparsification on GPUs", INFOCOM 2020; the published constants
// after the authors' code, github.com/HKBU-HPML/OMGS-SGD.
#include <planning/cost.hpp>
#include <planning/scheduler.hpp>

#include "merging.hpp"
#include "published.hpp"

namespace sdk = penstock::sdk;
namespace planning = penstock::planning;

namespace {

class Omgs : public planning::MeasuringScheduler<Omgs> {
 public:
  static constexpr const char* kName = "omgs";
  static inline const sdk::OptionList options{
      mode_option(),
      profile_steps_option(),
      replan_factor_option(),
      unmeasured_count_option(),
      backward_option(),
      sdk::real_option("selection_s", 2.18896957e-10)
          .at_least(0)
          .unit("s")
          .summary("published: top-k of x entries takes this times x log2 x (default: a P102-100)"),
      sdk::real_option("density", 0.001)
          .above(0)
          .at_most(1)
          .unit("fraction")
          .summary("published: share of entries sent, as set in the compressor"),
      sdk::choice_option("table", "release", {"release", "fork"})
          .summary("published: alpha and beta of OMGS-SGD's release, or of FGBuff's fork of it"),
      sdk::real_option("alpha_s", -1.0)
          .at_least(-1)
          .unit("s")
          .summary("published: start-up of one message; negative: from the table"),
      sdk::real_option("beta_s_per_byte", -1.0)
          .at_least(-1)
          .unit("s/byte")
          .summary("published: time per byte; negative: from the table")};

  explicit Omgs(const sdk::Options& values)
      : MeasuringScheduler(values, values.choice("mode") == "published"),
        constants_{values.real("backward_s"), values.real("selection_s"),
                   values.real("density"),    values.choice("table") == "fork",
                   values.real("alpha_s"),    values.real("beta_s_per_byte")} {}

  // Plans by times measured in the running job: selection takes the time of the encode lines, with
  // their fixed part once per call.
  planning::Buckets planned_buckets(const penstock_model& model, uint32_t phase) const {
    const std::vector<uint64_t> gradients = planning::taking_part(model, phase);
    const std::vector<double> ready = planning::ready_times(model, gradients);
    return omgs::merged(gradients, ready, planning::Together(model, phase));
  }
  planning::Buckets published_buckets(const penstock_model& model, uint32_t phase) const {
    return omgs::published_buckets(model, phase, constants_);
  }
  std::string published_reason(const penstock_model& model) const {
    return sdk::text("by the published constants for ", model.world, " ranks");
  }

 private:
  omgs::PublishedConstants constants_;
};

}  // namespace

PENSTOCK_SCHEDULER(Omgs, "scheduler/omgs", "0.1.0",
                   "merges sparsified gradients where messages saved outweigh the wait; rule from "
                   "the paper, constants from the authors' code, measured times and new plans ours",
                   "Shi et al., Communication-Efficient Distributed Deep Learning with Merged "
                   "Gradient Sparsification on GPUs, INFOCOM 2020; github.com/HKBU-HPML/OMGS-SGD");
