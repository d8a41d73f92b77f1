// Bases of schedulers that only form buckets. Such a scheduler has a name, cuts each phase into
// buckets, and gives its reason:
//
//   class Method : public planning::Scheduler<Method> {
//    public:
//     static constexpr const char* kName = "method";
//     static inline const sdk::OptionList options{...};
//     explicit Method(const sdk::Options& values);
//     Buckets buckets(const penstock_model& model, uint32_t phase) const;  // unless they are given
//     std::string reason(const penstock_model&, const planning::Plan&, uint32_t phase) const;
//   };
//
// All functions are [plan].
#pragma once

#include "planning/forecast.hpp"
#include "planning/model.hpp"
#include "planning/replanning.hpp"

#include <penstock/options.hpp>
#include <penstock/scheduler.hpp>

#include <string>
#include <vector>

namespace penstock::planning {

using Buckets = std::vector<std::vector<uint64_t>>;

inline bool are_given(const penstock_model& model) {
  return (model.flags & PENSTOCK_MODEL_GIVEN_BUCKETS) != 0;
}
inline bool is_measured(const penstock_model& model) {
  return (model.flags & PENSTOCK_MODEL_MEASURED) != 0;
}

// Throws INVALID_ARGUMENT, in the name of a scheduler, if no plan can be made of the model.
inline void require_plannable(const penstock_model& model, uint64_t routes, const char* name) {
  const std::string problem = find_problem(model, routes);
  if (!problem.empty()) throw sdk::invalid_argument("scheduler/", name, ": ", problem);
}

// Adds the order of messages on an ORDERED channel for route split: all reduce-scatters in the
// order of backward, then all all-gathers in the order of forward. In the order of buckets, the
// second reduce-scatter would wait for an all-gather that starts in the next forward, and the
// forward waits for the reduce-scatter.
inline void add_split_messages(sdk::PlanSink& sink, uint32_t phase, uint32_t n_buckets) {
  constexpr uint32_t kReduceScatter = 0, kAllGather = 1;  // legs
  for (uint32_t bucket = 0; bucket < n_buckets; ++bucket)
    sink.add_message(phase, bucket, kReduceScatter);
  for (uint32_t bucket = n_buckets; bucket > 0; --bucket)
    sink.add_message(phase, bucket - 1, kAllGather);
}

template <typename Method>
class Scheduler {
 public:
  // Defaults that a method may hide: its routes, the route of its buckets, their launch.
  static constexpr uint64_t kRoutes = kWholeBucketRoutes;
  static constexpr uint32_t kLaunch = PENSTOCK_LAUNCH_READY;
  static uint32_t route(const penstock_model& model) { return whole_bucket_route(model); }

  void describe(penstock_scheduler_traits& traits) const { traits.routes = Method::kRoutes; }

  // The default: one bucket per gradient.
  Buckets buckets(const penstock_model& model, uint32_t phase) const { return units(model, phase); }

  // Given buckets are neither divided nor joined.
  void plan(const penstock_model& model, sdk::PlanSink& sink) {
    require_plannable(model, Method::kRoutes, Method::kName);
    if (model.n_gradients == 0) return;
    const uint32_t route = Method::route(model);
    Plan made;
    for (uint32_t phase = 0; phase < model.period; ++phase) {
      for (const std::vector<uint64_t>& bucket :
           are_given(model) ? units(model, phase) : method().buckets(model, phase)) {
        sink.add_bucket(model, phase, bucket, route, Method::kLaunch);
        made.buckets.push_back(whole_gradients(model, bucket, phase, route));
        made.buckets.back().launch = Method::kLaunch;
      }
      method().end_phase(model, made, phase, sink);
    }
    method().end_plan(model, made);
  }

  // Called after the buckets of a phase: writes the explanation, and the messages if their order is
  // not the order of buckets.
  void end_phase(const penstock_model& model, const Plan& made, uint32_t phase,
                 sdk::PlanSink& sink) const {
    explain(sink, phase, method().reason(model, made, phase));
  }
  void end_plan(const penstock_model&, const Plan&) const {}

 protected:
  template <typename... Parts>
  static void explain(sdk::PlanSink& sink, uint32_t phase, const Parts&... parts) {
    sink.explain(sdk::text(Method::kName, ": phase ", phase, ": ", parts...));
  }
  static uint64_t n_buckets(const Plan& made, uint32_t phase) {
    uint64_t count = 0;
    for (const Bucket& bucket : made.buckets) count += bucket.phase == phase ? 1 : 0;
    return count;
  }
  static std::string forecast(const penstock_model& model, const Plan& made, uint32_t phase) {
    return sdk::text("forecast: ", planning::forecast(made, model, phase).exposed_us,
                     " us exposed after backward");
  }

  Method& method() { return static_cast<Method&>(*this); }
  const Method& method() const { return static_cast<const Method&>(*this); }
};

// A scheduler that plans from measured times; by count as long as no times are measured; or, in a
// published mode, from the constants of a paper's authors. Instead of buckets() it defines
//     Buckets planned_buckets(const penstock_model& model, uint32_t phase) const;
//     Buckets published_buckets(const penstock_model& model, uint32_t phase) const;
// where the latter is needed only with the option mode.
template <typename Method>
class MeasuringScheduler : public Scheduler<Method> {
 public:
  static sdk::Option mode_option() {
    return sdk::choice_option("mode", "planned", {"planned", "published"})
        .summary("planned: from measured times; published: the authors' constants");
  }
  static sdk::Option profile_steps_option(
      const char* summary =
          "planned: steps measured before the plan is made, and in each later observation") {
    return sdk::integer_option("profile_steps", 5)
        .at_least(1)
        .at_most(1000000)
        .unit("steps")
        .summary(summary);
  }
  static sdk::Option replan_factor_option(
      double value = 2,
      const char* summary = "planned: plan again when the exposed time has changed by this much") {
    return sdk::real_option("replan_factor", value).above(1).unit("factor").summary(summary);
  }
  static sdk::Option unmeasured_count_option(
      const char* summary = "planned: gradients in a bucket until times are measured") {
    return sdk::integer_option("unmeasured_count", 16)
        .at_least(1)
        .unit("gradients")
        .summary(summary);
  }
  static sdk::Option backward_option() {
    return sdk::real_option("backward_s", 0.035237)
        .at_least(0)
        .unit("s")
        .summary("published: backward time of the whole model (default: ResNet-50)");
  }

  void describe(penstock_scheduler_traits& traits) const {
    Scheduler<Method>::describe(traits);
    if (published_) return;
    traits.flags = PENSTOCK_SCHEDULER_MEASURES;
    traits.observe_every = static_cast<uint32_t>(profile_steps_);
  }

  Buckets buckets(const penstock_model& model, uint32_t phase) const {
    const Method& method = this->method();
    if constexpr (requires { method.published_buckets(model, phase); })
      if (published_) return method.published_buckets(model, phase);
    if (!is_measured(model)) return buckets_by_count(model, phase, unmeasured_count_);
    return method.planned_buckets(model, phase);
  }

  void end_plan(const penstock_model&, const Plan&) { replanning_.plan_made(); }

  uint32_t observe(const penstock_measurement& measurement) {
    return published_ ? uint32_t{PENSTOCK_KEEP_PLAN} : replanning_.decide(measurement);
  }

  std::string reason(const penstock_model& model, const Plan& made, uint32_t phase) const {
    std::string why = "nothing is measured yet";
    if (are_given(model))
      why = "as the frontend gave them";
    else if (published_)
      why = this->method().published_reason(model);
    else if (is_measured(model))
      why = this->forecast(model, made, phase);
    return sdk::text("gradients per bucket ", counts_text(made, phase), "; ", why);
  }
  std::string published_reason(const penstock_model&) const { return "by the published constants"; }

 protected:
  explicit MeasuringScheduler(const sdk::Options& values, bool published = false,
                              uint64_t replan_observations = 1)
      : published_(published),
        profile_steps_(static_cast<uint64_t>(values.integer("profile_steps"))),
        unmeasured_count_(static_cast<uint64_t>(values.integer("unmeasured_count"))),
        replanning_(profile_steps_, values.real("replan_factor"), replan_observations) {}

  Replanning& replanning() { return replanning_; }

 private:
  bool published_;
  uint64_t profile_steps_;
  uint64_t unmeasured_count_;
  Replanning replanning_;
};

}  // namespace penstock::planning
