// A set: what one optimizer or DDP object registers. Plan, step index, state and channels are its
// own.
//
// Its parts: Works (its buckets), Step (the machine of a step), Agreement (whether ranks go on from
// equal states), Carries (what replaced memories have left over), SetChannels, Traffic (what was
// sent), Measurements, ForgottenWatch. Its own files: declare.cpp (how it is made), plan.cpp
// (fittings and plans), end_step.cpp (the end of a step), set.cpp (that of the set), change.cpp
// (switches and new plans), residence.cpp (gradients on devices),
// save.cpp and shards.cpp (save, load), report.cpp (what people are told).
#pragma once

#include "core/fit/residence.hpp"
#include "core/plan/planner.hpp"
#include "core/set/agreement.hpp"
#include "core/set/carries.hpp"
#include "core/set/channels.hpp"
#include "core/set/forgotten_watch.hpp"
#include "core/set/measurements.hpp"
#include "core/set/outcome.hpp"
#include "core/set/record.hpp"
#include "core/set/traffic.hpp"

#include <penstock/runtime.h>

#include <map>
#include <span>

namespace penstock {

class Set;

// Ends a set, in bounded time. What a plugin call that never returns may still use is abandoned,
// not freed.
struct SetCloser {
  void operator()(Set* set) const;
};
using SetHandle = std::unique_ptr<Set, SetCloser>;

class Set final : private SetContext {
 public:
  using SetContext::name;

  // [control] Collective over the set's ranks.
  static Result<SetHandle> create(const Services& services,
                                  const penstock_set_declaration& declaration);
  ~Set();

  // See runtime.h for each of these.
  Status gradient_ready(uint64_t index, const penstock_tensor& tensor, void* stream = nullptr) {
    return step_.ready(index, tensor, stream);
  }
  Status gradient_absent(uint64_t index, const penstock_tensor& tensor) {
    return step_.absent(index, tensor);
  }
  Status learning_rate(uint64_t index, double rate) { return step_.set_learning_rate(index, rate); }
  Status learning_rates(std::span<const double> rates) { return step_.set_learning_rates(rates); }
  Status compare_parameters(std::span<const penstock_str> names,
                            std::span<const uint64_t> checksums, std::string_view advice);
  Status grad_scale(double scale) { return step_.set_grad_scale(scale); }
  Status forward_times(std::span<const double> first_use_us, double forward_us) {
    return measurements_.add_forward(first_use_us, forward_us);
  }
  Status optimizer_momentum();
  Status given_buckets(std::span<const uint32_t> buckets);
  Status on_result(void* context, penstock_result_sink sink) {
    return step_.on_result(context, sink);
  }
  Status wait(uint64_t index);
  Status wait_stream(uint64_t index, void* stream);
  Status wait_all();
  Status poll(uint64_t index, bool& done) { return step_.poll(index, done); }
  bool defers() const { return works_->defers(); }
  Status backward_end();
  Status flush();
  Status optimizer_step(std::span<const uint64_t> gradients, std::span<const uint8_t> gone,
                        uint32_t moment);
  Status results_gone(std::span<const uint8_t> gone);
  bool outcome_is_open() { return step_.under_way() && outcome_.is_open(); }
  Status step_end(uint32_t outcome = PENSTOCK_STEP_APPLIED);
  Status let_go();
  Status save(std::string& out);
  Status load(std::string_view bytes);
  Status load_shards(std::span<const std::string_view> shards, std::string& said);
  Status reset();
  Result<std::string> report();
  void counters(penstock_counters& counters) const;

  // [any] The run was given up: every wait ends with `reason`.
  void fail(const Status& reason);

  // [any] A rank has joined: it hears of the step under way.
  void tell_where();
  // [application] This rank has joined, others have begun their step of this `number` (attempt):
  // every gradient is zero here. Does not wait for it. The application's own step must be over.
  Status begin_with_zeros(uint64_t number, std::string_view facts);
  // [application] The same for the end of that step, as end_step tells it; waits for it.
  Status end_with_others(uint64_t number, std::string_view forgotten);
  bool under_way() { return step_.under_way(); }

 private:
  friend struct SetCloser;
  explicit Set(const Services& services);

  Status make(const penstock_set_declaration& declaration);
  Status share_outcome(std::string_view stage, const Status& mine);
  bool end();  // false: something is still running and cannot be waited for

  // end_step.cpp; forgotten[i]: not 0 where the result of gradient i was not applied
  Status end_step(const std::vector<uint8_t>& forgotten);
  Status finish_step(const std::vector<uint8_t>& forgotten, Status& refused_change);
  Status forgettable(const std::vector<uint8_t>& forgotten) const;
  Status settle_states(const std::vector<uint8_t>& forgotten);
  void note_past(const std::vector<uint8_t>& forgotten);
  void begin_attempt();
  void count_step(bool counts);
  void record(const Step::Times& times);
  Status catch_up(uint64_t number);

  Status drop_kept();

  // declare.cpp and plan.cpp
  Status declare(const penstock_set_declaration& declaration);
  Result<uint32_t> owner_of(const penstock_gradient_declaration& gradient) const;
  Status declare_gradients(const penstock_set_declaration& declaration);
  Status agree_on_declaration();
  Result<std::shared_ptr<const Fitting>> fit(uint64_t at);
  Result<std::vector<Stage>> fit_stages();
  Result<std::shared_ptr<const Fitting>> fit_first_stage();
  Result<FitAdvice> check_fit_of(const Fitting& fitting) const;
  void warn(const FitAdvice& advice);
  planning::ModelEntries model_of(const Fitting& fitting) const;
  uint64_t routes_open_to(const Gradient& gradient, const Fitting& fitting) const;
  PlanFacts plan_facts_of(const Fitting& fitting) const;
  Result<Plan> agree_on_plan(const Fitting& fitting);
  Status agree_on_needs(const Result<std::unique_ptr<Works>>& works);
  Result<std::unique_ptr<Works>> agree_on_works(const std::shared_ptr<const Fitting>& fitting,
                                                Plan plan);
  std::unique_ptr<Works> install(std::unique_ptr<Works> works);

  // residence.cpp
  Status find_devices();
  Status settle_residence(std::span<const Stage> stages);
  Status make_mirrors(const std::vector<Gradient*>& staged);
  Status make_residents(const std::vector<Gradient*>& resident);
  Status settle_engine(const Device& device);
  Status settle_device_of_messages(const Device& device);
  Status drain_devices();
  void end_on_devices();
  void say_staged();

  // Notes that a failure is one of all ranks.
  Status refused(Status status);

  StageTraffic planned_traffic() const {
    return works_->fitting().traffic(channels_.carriers(), step.index);
  }

  // report.cpp
  void say_plan();
  void say_end();
  void say_profile();  // writes it
  void warn_of_nonfinite();

  // save.cpp
  Result<std::unique_ptr<Works>> prepare_saved(uint64_t saved_step, Plan plan,
                                               std::string_view tensors);
  Status loadable();
  void go_on_from(uint64_t saved_step, std::unique_ptr<Works> works, Carries::Kept carries);
  Status check_saved_plan(const Plan& plan, const PlanFacts& facts, const Fitting& fitting) const;
  // shards.cpp
  Result<std::vector<SavedSet>> read_shards(std::span<const std::string_view> shards);
  Result<std::unique_ptr<Works>> works_of_shards(const std::vector<SavedSet>& saved,
                                                 const std::shared_ptr<const Fitting>& fitting,
                                                 const Resize& to, std::string& said);
  Status change_plan_of_shards(const std::shared_ptr<const Fitting>& fitting, std::string& said);
  Status go_on_from_shards(uint64_t saved_step, const std::shared_ptr<const Fitting>& fitting,
                           std::unique_ptr<Works> works, Carries::Kept carries, std::string& said);

  // Before the next step this is compared with the other ranks, after `loaded` a step or not.
  void need_agreement(std::string where, std::optional<uint64_t> loaded);

  // change.cpp
  Status change();
  Status agree_on_buckets(std::span<const uint32_t> buckets);
  void keep_order_of_last_step();
  Status observe();
  Status switch_scheme();
  Status replace_works(const std::shared_ptr<const Fitting>& fitting);
  Status agree_to_go_on(std::string_view topic, const Status& mine);
  Status hand_over(const Works& next);
  Status compare_replicated();

  const Services services_;
  std::map<uint64_t, Device> devices_;    // of gradients that lie on one
  std::unique_ptr<Staging> staging_;      // null: no gradient goes through host memory
  std::unique_ptr<Residents> residents_;  // null: none is worked on on a device
  std::vector<std::unique_ptr<Gradient>> gradients_;
  Carries carries_;
  Group group_;
  Step step_;
  Outcome outcome_;
  std::vector<uint8_t> forgotten_;  // of the step that ends, gradient by gradient
  uint64_t void_before_ = 0;        // buckets, when the step began
  Agreement agreement_;
  uint64_t meeting_us_ = 0;  // how long the other ranks are waited for between steps
  uint32_t frontend_flags_ = 0;
  Config config_;
  SetChannels channels_;
  Traffic traffic_;
  Measurements measurements_;
  std::unique_ptr<Works> works_;       // null until the set is made
  bool refused_together_ = false;      // the last failure of a change was one of all ranks
  std::vector<uint64_t> given_order_;  // in the step before buckets were given; empty: not yet
  double dense_moved_ = 0;             // with the mutex held

  std::unique_ptr<ModelRecord> record_;  // null: nobody asked for it, or another rank keeps it

  mutable std::mutex mutex_;  // of the counters
  penstock_counters totals_{};
  uint64_t allocations_at_steady_ = 0;
  uint64_t started_us_ = 0, ended_us_ = 0;  // the first gradient of all, the end of the last step
  uint64_t nonfinite_steps_ = 0;            // in which this rank had a gradient that is not finite
  bool said_nonfinite_ = false;
  ForgottenWatch forgotten_watch_;
};

}  // namespace penstock
