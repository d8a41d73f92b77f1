// Observes the outcome of a step's results.

#include "results.hpp"

#include <cstddef>
#include <exception>

#include "zeros.hpp"

namespace penstock::torch {

Results::Results(std::vector<Slot>& slots, const GradientSet& set) : slots_(slots), set_(set) {
  for (const Slot& slot : slots_) numbers_.push_back(slot.index);
  // Without this call, results that are thrown away before the first step would count as applied.
  tell(PENSTOCK_OPTIMIZER_LEAVES_OUT, {});
}

void Results::arrived(bool to_be_changed) {
  if (to_be_changed) {
    std::vector<at::Tensor> on_host;
    std::vector<Slot*> theirs;
    for (Slot& slot : slots_) {
      if (slot.is_on_device()) continue;
      on_host.push_back(slot.parameter.grad());
      theirs.push_back(&slot);
    }
    const std::vector<std::uint8_t> zero = are_zero(on_host);
    for (std::size_t i = 0; i < theirs.size(); ++i) theirs[i]->came_as_zeros = zero[i] != 0;
  }
  is_open_ = true;
}

void Results::look() {
  std::uint32_t open = 0;
  set_.call(penstock_outcome_open, &open);
  if (open != 0) {
    const Gone gone_now = gone(true);
    set_.call(penstock_results_gone, gone_now.data(), std::uint64_t{gone_now.size()});
  }
  is_open_ = false;
}

Gone Results::gone_for_step() const {
  return gone(false);
}

void Results::tell(std::uint32_t moment, const Gone& gone) const {
  set_.call(penstock_optimizer_step, numbers_.data(), gone.empty() ? nullptr : gone.data(),
            std::uint64_t{numbers_.size()}, moment);
}

Gone Results::gone(bool before_backward) const {
  Gone all(slots_.size());
  std::vector<at::Tensor> changed;
  std::vector<std::uint64_t> theirs;
  for (const Slot& slot : slots_) {
    const Slot::Held held = slot.held();
    const bool is_another = held == Slot::Held::another;
    all[slot.index] = held == Slot::Held::nothing || (is_another && before_backward);
    if (all[slot.index] != 0 || held == Slot::Held::result) continue;
    // A result that arrived as zeros was not zeroed, only scaled.
    if (slot.came_as_zeros || (slot.is_on_device() && !before_backward)) continue;
    changed.push_back(slot.parameter.grad());
    theirs.push_back(slot.index);
  }
  const std::vector<std::uint8_t> zero = are_zero(changed);
  for (std::size_t i = 0; i < theirs.size(); ++i) all[theirs[i]] = zero[i];
  return all;
}

ClosureStep::~ClosureStep() {
  if (!is_inside_) return;
  try {
    results_.tell(PENSTOCK_OPTIMIZER_ENDS, Gone(results_.size(), 1));
  } catch (const std::exception&) {
    // The run is over. The call that ended it has reported the error.
  }
}

void ClosureStep::evaluated() {
  results_.tell(PENSTOCK_OPTIMIZER_BEGINS, results_.gone_for_step());
  is_inside_ = true;
}

void ClosureStep::ended() {
  results_.tell(PENSTOCK_OPTIMIZER_ENDS, is_inside_ ? Gone() : results_.gone_for_step());
  is_inside_ = false;
}

}  // namespace penstock::torch
