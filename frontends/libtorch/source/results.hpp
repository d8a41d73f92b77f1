// What became of the results of a step, as this frontend sees it: an optimizer has used them, or
// they are gone. The core is told, and decides (<penstock/runtime.h>, "What became of a step's
// results").
//
// A gradient's values are read only where its tensor was changed since the result came, by anything
// but the optimizer's zero_grad(). Threads: the caller sees to it that calls do not overlap, but
// for may_be_gone().
#ifndef PENSTOCK_LIBTORCH_RESULTS_HPP
#define PENSTOCK_LIBTORCH_RESULTS_HPP

#include "door.hpp"
#include "slot.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::torch {

// Of each gradient of the set: not 0 where it holds its result no more.
using Gone = std::vector<std::uint8_t>;

class Results {
 public:
  // Both are borrowed, and outlive this. The core hears that these gradients have an optimizer.
  Results(std::vector<Slot>& slots, const GradientSet& set);

  // All have arrived. `to_be_changed`: the program asked for them, and may change them before its
  // step; so it is noted which are zero already, where that can be read without a wait.
  void arrived(bool to_be_changed);
  void ended() { is_open_ = false; }
  std::size_t size() const { return numbers_.size(); }

  // [any] False while there is nothing to look for, which is most of the time.
  bool may_be_gone() const { return is_open_; }
  // A backward is about to add to some gradient, for the first time since the results arrived.
  void look();

  // What a step of the optimizer finds. Another tensor in a gradient's place counts as its result,
  // scaled or otherwise made of it, unless it is zero. On a device only zero_grad() counts as
  // zeroing: programs that clip would wait for the device in every step.
  Gone gone_for_step() const;
  // The optimizer is at `moment`, PENSTOCK_OPTIMIZER_*.
  void tell(std::uint32_t moment, const Gone& gone) const;

 private:
  Gone gone(bool before_backward) const;

  std::vector<Slot>& slots_;
  const GradientSet& set_;
  std::vector<std::uint64_t> numbers_;  // of all gradients
  std::atomic<bool> is_open_ = false;   // there are results, and nobody has looked
};

// A step of the optimizer with a closure, which backward runs in. Results that were there before
// are used only where the closure leaves them: it may throw them away first, as SAM does.
class ClosureStep {
 public:
  explicit ClosureStep(const Results& results) : results_(results) {}
  // Where the optimizer or the closure has thrown: what it has not seen is not used.
  ~ClosureStep();
  ClosureStep(const ClosureStep&) = delete;
  ClosureStep& operator=(const ClosureStep&) = delete;

  // The closure has returned, and the results are there.
  void evaluated();
  void ended();

 private:
  const Results& results_;
  bool is_inside_ = false;
};

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_RESULTS_HPP
