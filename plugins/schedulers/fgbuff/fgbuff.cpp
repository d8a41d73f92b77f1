// FGBuff: buckets by number of gradients, each filled for as long as the bucket before it is sent.
// Source: FGBuff, github.com/ATC24-FGBuff/FGBuff, 2024: no paper is known to us, the method was
// read from the code.
#include <planning/scheduler.hpp>

#include "planned.hpp"
#include "published.hpp"

namespace sdk = penstock::sdk;
namespace planning = penstock::planning;

namespace {

class Fgbuff : public planning::MeasuringScheduler<Fgbuff> {
 public:
  static constexpr const char* kName = "fgbuff";
  static inline const sdk::OptionList options{
      mode_option(),
      profile_steps_option(),
      replan_factor_option(),
      sdk::integer_option("first_count", 4)
          .at_least(1)
          .unit("gradients")
          .summary("planned: most gradients in the first bucket"),
      unmeasured_count_option(),
      backward_option(),
      sdk::real_option("startup_s", 3.780956e-3)
          .at_least(0)
          .unit("s")
          .summary("published: start-up time of one collective"),
      sdk::real_option("slack_s", 0.0)
          .at_least(0)
          .unit("s")
          .summary("published: backward time a group may wait beyond the start-ups it saves"),
      sdk::real_option("density", 0.1)
          .above(0)
          .at_most(1)
          .unit("fraction")
          .summary("published: share of entries sent, as set in the compressor"),
      sdk::bool_option("accumulator_reset", false)
          .summary("published: reset the collecting time for each buffer, as was meant")};

  explicit Fgbuff(const sdk::Options& values)
      : MeasuringScheduler(values, values.choice("mode") == "published"),
        first_count_(static_cast<uint64_t>(values.integer("first_count"))),
        constants_{values.real("backward_s"), values.real("startup_s"), values.real("slack_s"),
                   values.real("density"), values.boolean("accumulator_reset")} {}

  planning::Buckets planned_buckets(const penstock_model& model, uint32_t phase) const {
    return fgbuff::planned_buckets(model, phase, first_count_);
  }
  planning::Buckets published_buckets(const penstock_model& model, uint32_t phase) const {
    const std::vector<uint64_t> gradients = planning::taking_part(model, phase);
    std::vector<uint64_t> sizes;
    for (uint64_t gradient : gradients) sizes.push_back(model.gradients[gradient]->numel);
    return planning::runs_of(gradients, fgbuff::published_counts(sizes, constants_));
  }

 private:
  uint64_t first_count_;
  fgbuff::PublishedConstants constants_;
};

}  // namespace

PENSTOCK_SCHEDULER(Fgbuff, "scheduler/fgbuff", "0.1.0",
                   "buckets by number of gradients, each filled while the one before it is sent",
                   "FGBuff, github.com/ATC24-FGBuff/FGBuff, 2024");
