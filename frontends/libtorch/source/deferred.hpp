// Deferred updates: communication continues into the next forward, and each parameter is updated
// just before the forward uses it. Source: Zhang et al., "DeAR: Accelerating Distributed Deep
// Learning with Fine-Grained All-Reduce Pipelining", ICDCS 2023.
//
// After step() the parameters have their old values, this class keeps their gradients, and
// parameter.grad() is undefined. torch's optimizers skip parameters without a gradient, so the
// optimizer's own step updates exactly the parameters that have a gradient at that moment.
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
  // All arguments are borrowed and must outlive this object.
  Deferred(::torch::optim::Optimizer& optimizer, std::vector<Slot>& slots, const GradientSet& set);
  ~Deferred();
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;

  // For step(): backward is over and all gradients are handed in. Promises the update, with the
  // optimizer's options of this moment. A parameter that before_forward() has never named is
  // updated at once, because no call would announce its next use.
  void promise();

  // Updates those parameters in the list whose update waits.
  void before_forward(const std::vector<at::Tensor>& parameters);
  // Carries out every update that waits.
  void flush();

  // Waits for all results of the last step, which then can end. The exchange calls it before the
  // first gradient of the next step.
  void settle();

  // Throws if the update of this parameter still waits. Called when backward gives it a gradient.
  void check_used(std::size_t number) const;

  // Drops the updates that wait. Called after a failure: they are lost with their step.
  void forget();

 private:
  void arrive(const std::set<std::size_t>& numbers);
  void apply(const std::set<std::size_t>& numbers);
  void step_with_promised_options();

  ::torch::optim::Optimizer& optimizer_;
  std::vector<Slot>& slots_;
  const GradientSet& set_;
  std::set<std::size_t> told_;     // slots that before_forward() has named
  std::set<std::size_t> waiting_;  // not updated yet
  std::vector<std::unique_ptr<::torch::optim::OptimizerOptions>> options_;  // of each group
};

// Carries out the updates that wait, for every optimizer of this process.
void flush_all();

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_DEFERRED_HPP
