// MG-WFBP: a gradient is merged with the next gradient while the saved start-up is longer than the
// wait.
// Source: Shi, Chu and Li, "MG-WFBP: Efficient Data Communication for Distributed Synchronous SGD
// Algorithms", INFOCOM 2019; the order of its steps and the published lines follow the authors'
// code, github.com/HKBU-HPML/MG-WFBP.
#include <planning/cost.hpp>
#include <planning/scheduler.hpp>

#include "merging.hpp"
#include "published.hpp"

namespace sdk = penstock::sdk;
namespace planning = penstock::planning;

namespace {

class MgWfbp : public planning::MeasuringScheduler<MgWfbp> {
 public:
  static constexpr const char* kName = "mgwfbp";
  static inline const sdk::OptionList options{
      mode_option(),
      profile_steps_option(),
      replan_factor_option(),
      unmeasured_count_option(),
      sdk::choice_option("network", "10GbE", {"10GbE", "56GbIB"})
          .summary("published: network whose start-up and speed are used, by number of ranks"),
      backward_option(),
      sdk::real_option("alpha_s", -1.0)
          .at_least(-1)
          .unit("s")
          .summary("published: start-up of one message; negative: the value of the network"),
      sdk::real_option("beta_s_per_byte", -1.0)
          .at_least(-1)
          .unit("s/byte")
          .summary("published: time per byte; negative: the value of the network")};

  explicit MgWfbp(const sdk::Options& values)
      : MeasuringScheduler(values, values.choice("mode") == "published"),
        constants_{values.real("backward_s"), values.choice("network") == "56GbIB",
                   values.real("alpha_s"), values.real("beta_s_per_byte")} {}

  // Plans by times measured in the running job.
  planning::Buckets planned_buckets(const penstock_model& model, uint32_t phase) const {
    const std::vector<uint64_t> gradients = planning::taking_part(model, phase);
    const std::vector<double> ready = planning::ready_times(model, gradients);
    return mgwfbp::merged(gradients, ready, planning::startup_us(model),
                          planning::Together(model, phase));
  }
  planning::Buckets published_buckets(const penstock_model& model, uint32_t phase) const {
    return mgwfbp::published_buckets(model, phase, constants_);
  }
  std::string published_reason(const penstock_model& model) const {
    const planning::PublishedLink line = mgwfbp::line_for(constants_, model.world);
    return sdk::text("published: ", 1e6 * line.startup_s, " us + ", 1e9 * line.s_per_byte,
                     " us per kB for ", model.world, " ranks");
  }

 private:
  mgwfbp::PublishedConstants constants_;
};

}  // namespace

PENSTOCK_SCHEDULER(MgWfbp, "scheduler/mgwfbp", "0.1.0",
                   "merges gradients while that saves more start-up than it waits; rule from the "
                   "paper, tables from the authors' code, measured times and new plans ours",
                   "Shi, Chu and Li, MG-WFBP, INFOCOM 2019; github.com/HKBU-HPML/MG-WFBP");
