// Picks compressors and buckets by trial: candidates are measured, the assignments that the model
// favours are run besides dense, and the assignment with the shortest steps stays. The method is
// ours; the choices of the scheduler follow Espresso (Wang et al., EuroSys 2023) and HiPress (Bai
// et al., SOSP 2021).
#include <planning/choosing.hpp>
#include <utility>

#include "assignments.hpp"
#include "trials.hpp"

namespace sdk = penstock::sdk;
namespace planning = penstock::planning;

namespace {

class Auto {
 public:
  static constexpr uint64_t kRoutes = planning::kWholeBucketRoutes;
  static inline const sdk::OptionList options{
      sdk::string_option("dense", "none")
          .summary("compressor instance, among the candidates, that other candidates must beat"),
      sdk::integer_option("most_trials", 3)
          .at_least(1)
          .at_most(16)
          .unit("assignments")
          .summary("most assignments that are tried beside dense"),
      sdk::real_option("slack", 0.02)
          .at_least(0)
          .at_most(1)
          .unit("fraction")
          .summary(
              "an assignment that is slower than dense was by more than this is compared again"),
      sdk::integer_option("profile_steps", 5)
          .at_least(1)
          .at_most(1000000)
          .unit("steps")
          .summary("steps in an observation; three observations try an assignment")};

  explicit Auto(const sdk::Options& values)
      : dense_(values.string("dense")),
        most_trials_(static_cast<uint64_t>(values.integer("most_trials"))),
        profile_steps_(static_cast<uint64_t>(values.integer("profile_steps"))),
        trials_(values.real("slack")) {}

  void describe(penstock_scheduler_traits& traits) const {
    traits.routes = kRoutes;
    traits.flags = PENSTOCK_SCHEDULER_MEASURES | PENSTOCK_SCHEDULER_CHOOSES;
    traits.observe_every = static_cast<uint32_t>(profile_steps_);
  }

  void plan(const penstock_model& model, sdk::PlanSink& sink) {
    planning::require_plannable(model, kRoutes, "auto");
    planning::require_candidate(model, dense_, "auto");
    if (model.n_gradients == 0) return;
    if (!planning::has_choice(model, dense_) || !planning::are_all_measured(model)) {
      is_asked_ = false;
      stage_ = planning::has_choice(model, dense_) ? Stage::measures : Stage::rests;
      planning::Plan plan = planning::probing_plan(model);
      plan.explanation = {planning::probing_words(model, plan, dense_, "auto")};
      planning::write(plan, sink);
      return;
    }
    // A plan for which this scheduler did not ask is for another model, or for new times.
    const bool is_another = identity_of(model) != identity_;
    if (is_another) trials_.forget();
    if (!std::exchange(is_asked_, false) || is_another) begin_round(model);
    planning::Plan plan = assignments_[trials_.assignment()].plan;
    plan.explanation = table();
    planning::write(plan, sink);
  }

  uint32_t observe(const penstock_measurement& measurement) {
    if (stage_ == Stage::rests || measurement.step < profile_steps_) return PENSTOCK_KEEP_PLAN;
    if (stage_ == Stage::measures) return PENSTOCK_MAKE_NEW_PLAN;
    const automatic::Next next = trials_.observe(measurement.step_us);
    is_asked_ = next == automatic::Next::plan;
    return next == automatic::Next::keep ? PENSTOCK_KEEP_PLAN : PENSTOCK_MAKE_NEW_PLAN;
  }

 private:
  enum class Stage {
    measures,  // measures candidates before they have run
    tries,     // tries assignments, or keeps the assignment that won
    rests      // there is nothing to choose
  };

  void begin_round(const penstock_model& model) {
    stage_ = Stage::tries;
    identity_ = identity_of(model);
    assignments_ = automatic::assignments_of(model, dense_, most_trials_);
    std::vector<automatic::Predicted> predicted;
    for (const automatic::Assignment& assignment : assignments_)
      predicted.push_back({assignment.name, assignment.step_us});
    trials_.begin(predicted);
  }

  // The properties of a model that a plan must fit; times are not among them. All plans of one
  // round hold for models with an equal identity.
  static std::vector<uint64_t> identity_of(const penstock_model& model) {
    std::vector<uint64_t> identity{model.period, model.route, uint64_t{planning::are_given(model)}};
    for (uint64_t i = 0; i < model.n_gradients; ++i) {
      const penstock_gradient_model& gradient = *model.gradients[i];
      identity.insert(identity.end(),
                      {gradient.numel, gradient.n_candidates, gradient.given_bucket});
    }
    return identity;
  }

  std::vector<std::string> table() const {
    std::vector<std::string> lines;
    for (size_t i = 0; i < assignments_.size(); ++i) {
      const double measured = trials_.measured_us(i);
      lines.push_back(sdk::text("auto: ", assignments_[i].name, ": ",
                                assignments_[i].plan.buckets.size(), " buckets, forecast ",
                                assignments_[i].step_us, " us from the start of backward, ",
                                measured < 0 ? std::string("not measured")
                                             : sdk::text("measured ", measured, " us a step"),
                                i != trials_.assignment() ? ""
                                : trials_.is_settled()    ? "; chosen"
                                                          : "; on trial"));
    }
    if (assignments_.size() == 1)
      lines.emplace_back("auto: no other assignment is forecast to be shorter, so none is tried");
    return lines;
  }

  std::string dense_;
  uint64_t most_trials_;
  uint64_t profile_steps_;
  Stage stage_ = Stage::measures;
  // whether a plan of the assignment that trials_ now names was asked for
  bool is_asked_ = false;
  std::vector<uint64_t> identity_;  // of the model for which assignments were made
  std::vector<automatic::Assignment> assignments_;
  automatic::Trials trials_;
};

}  // namespace

PENSTOCK_SCHEDULER(Auto, "scheduler/auto", "0.1.0",
                   "tries dense and the compressors and buckets that the model predicts to be "
                   "fast, and keeps the assignment with the shortest measured step",
                   "ours; the space follows Wang et al., Espresso, EuroSys 2023");
