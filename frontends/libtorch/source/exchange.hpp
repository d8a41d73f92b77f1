// The exchange of one optimizer's gradients between backward and update: hooks, the protocol of a
// step with the core, and the errors of both.
//
// A step of the core: begin (first gradient, or synchronize) -> ready ... -> wait -> end(outcome).
// Threads: hooks run on autograd's threads. All other calls come from the thread that drives the
// optimizer, while no backward is under way.
#ifndef PENSTOCK_LIBTORCH_EXCHANGE_HPP
#define PENSTOCK_LIBTORCH_EXCHANGE_HPP

#include "deferred.hpp"
#include "door.hpp"
#include "parameters.hpp"
#include "results.hpp"
#include "slot.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace penstock::torch {

// Throws if a DistributedOptimizer averages the gradient of this parameter. Called for an object
// that would exchange the parameter itself.
void refuse_averaged(const at::Tensor& parameter);

class Exchange {
 public:
  // Collective. In the first step no gradient is sent before the ranks have compared their
  // parameters.
  Exchange(::torch::optim::Optimizer& optimizer, const NamedTensors& named, const Options& options);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Registers two hooks on every parameter. torch has a single place for the second hook; the
  // constructor has checked that this place is free.
  static void attach(const std::shared_ptr<Exchange>& exchange);

  // The hooks call these: before_gradient when backward is about to add to the gradient of slot
  // `number`, on_gradient when backward has completed it.
  void before_gradient(std::size_t number);
  void on_gradient(std::size_t number);

  // Throws the error of a hook or of an earlier call. The step is lost, and the error stays until
  // load().
  void raise_error();

  // Waits until every gradient holds its result. Does nothing if every gradient holds it already.
  // `for_step`: the optimizer's step follows, and the program does not change the gradients before.
  void synchronize(bool for_step);

  // Replaces synchronize() and the optimizer's step if the plan leaves results for the next
  // forward. True: the update is promised. False: the call has done nothing.
  bool defer();
  // Null if updates are not deferred.
  Deferred* deferred() const { return deferred_.get(); }
  // Carries out the updates that wait for the next forward.
  void flush();

  // Ends a step whose results are there, with `outcome` (PENSTOCK_STEP_*). Does nothing if there is
  // no such step.
  void end(std::uint32_t outcome);
  // Waits for the results, and ends the step with `outcome` whatever the gradients hold.
  void conclude(std::uint32_t outcome);
  // The factor of the loss of the next backward.
  void scale_next(double scale);
  // The outcome of the results, between synchronize() and end().
  Results& results() { return *results_; }
  // The optimizer's zero_grad(false) has run.
  void note_zeroed();

  // Saves the state from before the step under way. Waits for the step's results; the step goes on.
  std::vector<std::uint8_t> save();
  // Loads a saved state. Drops a step that is under way or has failed.
  void load(const std::vector<std::uint8_t>& state);
  // Empties the memories. A step that the optimizer has not taken yet is forgotten.
  void let_go();

  // True if a backward has run since the last synchronize().
  bool touched() const { return set_->step().has_come; }
  const GradientSet& set() const { return *set_; }

 private:
  bool is_at(std::uint32_t phase) const { return set_->step().phase == phase; }
  bool has_results() const;
  void begin();
  void submit(Slot& slot, bool begins);
  void close_step();
  bool plan_defers() const;
  void hand_in_the_rest();
  void wait_for_results();
  void tell_options();
  void compare_parameters(std::string_view advice) const;
  void check_hook_places() const;
  void check_groups() const;
  void check_frozen() const;
  void drop_what_is_under_way();
  void rewind();
  void detach();

  ::torch::optim::Optimizer& optimizer_;
  const Options options_;
  const std::vector<NamedParameter> named_;
  const std::size_t n_parameters_;
  double scale_ = 1, told_scale_ = 1;
  std::vector<Slot> slots_;
  std::vector<const void*> hooks_;       // by slot, as far as they are registered
  std::vector<unsigned> earlier_hooks_;  // by slot: the hooks that run before an addition
  std::shared_ptr<GradientSet> set_;
  std::unique_ptr<Results> results_;
  std::unique_ptr<Deferred> deferred_;
  std::vector<std::optional<double>> told_rates_;
  bool told_momentum_ = false;
  bool agreed_ = false;
  std::mutex mutex_;  // guards error_ and begin(), which several threads of autograd may call
  std::exception_ptr error_;
};

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_EXCHANGE_HPP
