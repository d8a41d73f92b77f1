// A set: the gradients that one optimizer or DDP object registers. Each part is a class in a file:
//
//   Declaration, Residence    the frontend's declaration; gradients on devices: resident or staged
//   Fits, Plans, Change       bound schemes; the plan and compiled plan in force; their changes
//   Step, StepWaits, StepEnd  the state machine of a step; the application's waits; the outcome
//   Carries, Saver            mass that replaced memories still held; saved states
//   Consensus, Agreement      all ranks go on or none does; they go on from equal states
//   Measurements, Traffic     measurements for the planner (core/tuning); counts of sent bytes
//   SetChannels, Reporter     the set's own channels; reports to the user
//   Rates, JoinedSteps        learning rates and scale of the loss; steps of a rank that has joined
//
// Threads: [application] trains and calls the set. [control] is this thread while no step of the
// set is under way. [engine] runs the jobs of buckets. [any]: every thread may call the function.
#pragma once

#include "core/set/agreement.hpp"
#include "core/set/joined_steps.hpp"
#include "core/set/saver.hpp"

#include <penstock/runtime.h>

#include <span>

namespace penstock {

class Set;

// Ends a set in bounded time. Memory that a hanging plugin call may still use is not freed.
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

  // See runtime.h for each of these functions.
  Status gradient_ready(uint64_t index, const penstock_tensor& tensor, void* stream = nullptr) {
    return step_.ready(index, tensor, stream);
  }
  Status gradient_absent(uint64_t index, const penstock_tensor& tensor) {
    return step_.absent(index, tensor);
  }
  Status learning_rate(uint64_t index, double rate) { return rates_.set(index, rate); }
  Status learning_rates(std::span<const double> rates) { return rates_.set_all(rates); }
  Status compare_parameters(std::span<const penstock_str> names,
                            std::span<const uint64_t> checksums, std::string_view advice);
  bool comparison_due();
  void agree(std::string_view text) { agreement_.compare(std::string(text)); }
  Status agreed() { return agreement_.compared(); }
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
  Status poll(uint64_t index, bool& done) { return waits_.poll(index, done); }
  uint32_t defers() const;  // PENSTOCK_DEFERS_*
  Status backward_end();
  Status flush();
  Status optimizer_step(std::span<const uint64_t> gradients, std::span<const uint8_t> gone,
                        uint32_t moment) {
    return step_end_.optimizer_step(gradients, gone, moment);
  }
  Status results_gone(std::span<const uint8_t> gone) { return step_end_.results_gone(gone); }
  bool under_way() { return step_.under_way(); }
  bool outcome_is_open() { return step_end_.outcome_is_open(); }
  Status step_end(uint32_t outcome = PENSTOCK_STEP_APPLIED) { return step_end_.end(outcome); }
  Status let_go() { return step_end_.let_go(); }
  Status save(std::string& out);
  Status load(std::string_view bytes) { return saver_.load(bytes); }
  Status load_shards(std::span<const std::string_view> shards, std::string& said) {
    return saver_.load_shards(shards, said);
  }
  Status reset();
  Result<std::string> report() { return reporter_.report(); }
  void counters(penstock_counters& counters) const { reporter_.counters(counters); }

  // [any] The run was given up: every wait ends with `reason`.
  void fail(const Status& reason) { step_.tear(agreement_.explain(reason)); }
  // Steps of the other ranks after this rank's data has ended (Horovod's join).
  JoinedSteps& joined() { return joined_; }

 private:
  friend struct SetCloser;
  explicit Set(const Services& services);
  Status make(const penstock_set_declaration& declaration);
  bool end();  // false: a job or plugin call did not end in time, and the set must not be freed

  const Services services_;
  uint64_t compared_at_ = UINT64_MAX;  // the attempt before which parameters were compared last
  Declaration declaration_;
  Residence residence_;
  Consensus consensus_;
  Carries carries_;
  Rates rates_;
  Step step_;
  StepWaits waits_;
  Agreement agreement_;
  SetChannels channels_;
  Traffic traffic_;
  Measurements measurements_;
  Fits fits_;
  Plans plans_;
  Reporter reporter_;
  Change change_;
  StepEnd step_end_;
  Saver saver_;
  JoinedSteps joined_;
};

}  // namespace penstock
