// Observes the results of a step: an optimizer has used them, or they are gone. The observations go
// to the core, which decides the outcome (<penstock/runtime.h>, "What became of a step's results").
//
// A gradient's values are read only if its tensor has changed since the result arrived, and not by
// the optimizer's zero_grad(). Threads: calls must not overlap; the caller ensures it. The
// exception is may_be_gone(), which any thread may call.
#ifndef PENSTOCK_LIBTORCH_RESULTS_HPP
#define PENSTOCK_LIBTORCH_RESULTS_HPP

#include "door.hpp"
#include "slot.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::torch {

// One entry for each gradient of the set: not 0 if the gradient no longer holds its result.
using Gone = std::vector<std::uint8_t>;

class Results {
 public:
  // Both arguments are borrowed and must outlive this object. Notifies the core that these
  // gradients have an optimizer.
  Results(std::vector<Slot>& slots, const GradientSet& set);

  // All results have arrived. `to_be_changed`: the program asked for the results and may change
  // them before its step. This call then notes the results that are zero already, in host memory
  // only, where reading them needs no wait.
  void arrived(bool to_be_changed);
  void ended() { is_open_ = false; }
  std::size_t size() const { return numbers_.size(); }

  // [any] False, as it is most of the time, if there are no results to inspect.
  bool may_be_gone() const { return is_open_; }
  // Inspects the gradients and reports lost results to the core. Called when a backward is about to
  // add to a gradient for the first time since the results arrived.
  void look();

  // The lost results as a step of the optimizer finds them. Another tensor in a gradient's place
  // counts as its result, scaled or otherwise computed from it, unless that tensor is zero. On a
  // device only zero_grad() counts as zeroing: otherwise programs that clip would wait for the
  // device in every step.
  Gone gone_for_step() const;
  // Reports to the core that the optimizer is at `moment` (PENSTOCK_OPTIMIZER_*).
  void tell(std::uint32_t moment, const Gone& gone) const;

 private:
  Gone gone(bool before_backward) const;

  std::vector<Slot>& slots_;
  const GradientSet& set_;
  std::vector<std::uint64_t> numbers_;  // of all gradients
  std::atomic<bool> is_open_ = false;   // there are results, and look() has not run yet
};

// A step of the optimizer with a closure that runs backward. Results from before the closure count
// as used only if the closure leaves them in the gradients; it may first throw them away, as SAM
// does.
class ClosureStep {
 public:
  explicit ClosureStep(const Results& results) : results_(results) {}
  // If the optimizer or the closure has thrown: results that the optimizer has not seen do not
  // count as used.
  ~ClosureStep();
  ClosureStep(const ClosureStep&) = delete;
  ClosureStep& operator=(const ClosureStep&) = delete;

  // The closure has returned, and its results are there.
  void evaluated();
  // The optimizer's step has returned.
  void ended();

 private:
  const Results& results_;
  bool is_inside_ = false;
};

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_RESULTS_HPP
