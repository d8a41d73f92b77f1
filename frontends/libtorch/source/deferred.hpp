// Updates that wait for the next forward: communication goes on into it, and each parameter is
// updated just before it is used. Source: Zhang et al., "DeAR: Accelerating Distributed Deep
// Learning with Fine-Grained All-Reduce Pipelining", ICDCS 2023.
//
// After step() parameters have their old values, their gradients are kept here, and
// parameter.grad() is undefined: torch's optimizers leave such parameters out, so that the
// optimizer's own step on those that have a gradient is the update of these alone.
#ifndef PENSTOCK_LIBTORCH_DEFERRED_HPP
#define PENSTOCK_LIBTORCH_DEFERRED_HPP

#include "door.hpp"
#include "slot.hpp"

#include <torch/optim/optimizer.h>

#include <cstddef>
#include <memory>
#include <set>
#include <vector>

namespace penstock::torch {

class Deferred {
 public:
  // All are borrowed, and outlive this.
  Deferred(::torch::optim::Optimizer& optimizer, std::vector<Slot>& slots, const GradientSet& set);
  ~Deferred();
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;

  // step(): backward is over, all gradients are handed in, and the update is promised, with the
  // options of this moment. A parameter that before_forward() has never told is updated at once:
  // nobody would announce its next use.
  void promise();

  // Updates what of these parameters waits.
  void before_forward(const std::vector<at::Tensor>& parameters);
  void flush();

  // Before the first gradient of the next step: all results arrive, with which the last one ends.
  void settle();

  // Throws where a gradient comes for a parameter whose update still waits.
  void check_used(std::size_t number) const;

  // After a failure: what waits is lost with its step.
  void forget();

 private:
  void arrive(const std::set<std::size_t>& numbers);
  void apply(const std::set<std::size_t>& numbers);
  void step_with_promised_options();

  ::torch::optim::Optimizer& optimizer_;
  std::vector<Slot>& slots_;
  const GradientSet& set_;
  std::set<std::size_t> told_;     // slots that before_forward() has told
  std::set<std::size_t> waiting_;  // not updated yet
  std::vector<std::unique_ptr<::torch::optim::OptimizerOptions>> options_;  // of each group
};

// Applies what waits in every optimizer of this process.
void flush_all();

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_DEFERRED_HPP
