// Ends a step: decides the outcome of its results, and updates states, carries, counters and plan.
#pragma once

#include "core/set/change.hpp"
#include "core/set/forgotten_watch.hpp"
#include "core/set/outcome.hpp"
#include "core/set/reporter.hpp"
#include "core/set/step_waits.hpp"

#include <span>
#include <vector>

namespace penstock {

class StepEnd {
 public:
  // The other parts of the set that the end of a step uses.
  struct Uses {
    const Declaration& declaration;
    Consensus& consensus;
    Step& step;
    StepWaits& waits;
    Plans& plans;
    Carries& carries;
    Residence& residence;
    Change& change;
    Measurements& measurements;
    Reporter& reporter;
  };
  // The arguments must outlive the object.
  StepEnd(SetContext& set, const Services& services, const Uses& uses)
      : set_(set), services_(services), uses_(uses), forgotten_watch_(set, services) {}

  // [control] Once the gradients are declared.
  void resize(size_t n_gradients);
  // [control] The next step begins, with the compiled plan in force.
  void begin_next();

  // [application] See runtime.h for these functions.
  Status optimizer_step(std::span<const uint64_t> gradients, std::span<const uint8_t> gone,
                        uint32_t moment);
  Status results_gone(std::span<const uint8_t> gone);
  bool outcome_is_open() const { return uses_.step.under_way() && outcome_.is_open(); }
  Status end(uint32_t outcome);
  Status let_go();

  // [application] Ends the step with the outcome that other ranks have decided. forgotten[i]: not 0
  // if the result of gradient i was not applied.
  Status end_as_notified(std::string_view forgotten);

 private:
  Status conclude();
  Status finish(Status& refused_change);
  Status forgettable() const;
  Status settle_states();
  void note_past();
  void count_step(bool counts);
  Status drop_kept();
  Status compare_replicated();

  SetContext& set_;
  const Services& services_;
  const Uses uses_;
  Outcome outcome_;
  std::vector<uint8_t> forgotten_;  // in the step that ends, gradient by gradient
  uint64_t void_before_ = 0;        // void buckets that were counted before this step
  ForgottenWatch forgotten_watch_;
};

}  // namespace penstock
