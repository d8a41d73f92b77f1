// The gradients of one optimizer between backward and update: hooks, the step protocol with the
// core, and its errors.
//
// A step of the core: begin (first gradient, or synchronize) -> ready ... -> wait -> end(outcome).
// Threads: hooks run on autograd's threads; everything else on the thread that drives the
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

class Exchange {
 public:
  // Collective. In the first step nothing leaves before the ranks hold the same parameters.
  Exchange(::torch::optim::Optimizer& optimizer, const NamedTensors& named, const Options& options);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Lays two hooks upon every parameter; the place of the second the constructor has found free.
  static void attach(const std::shared_ptr<Exchange>& exchange);

  // From the hooks: backward is about to add to the gradient of slot `number`, and has completed
  // it.
  void before_gradient(std::size_t number);
  void on_gradient(std::size_t number);

  // Throws what went wrong in hooks. It stays until restart(): the step is lost.
  void raise_error();

  // Waits until every gradient holds its result. Does nothing when that is so already.
  // `for_step`: the optimizer's step follows, and nobody changes them before.
  void synchronize(bool for_step);

  // Instead of synchronize() and the optimizer's step, where the plan leaves results for the next
  // forward: true when the update is promised. False: nothing has happened.
  bool defer();
  // Null where updates are not deferred.
  Deferred* deferred() const { return deferred_.get(); }
  // Applies what waits for the next forward.
  void flush();

  // Ends a step that has its results, as `outcome` (PENSTOCK_STEP_*) says; nothing when there is
  // none.
  void end(std::uint32_t outcome);
  // The results are not applied, whatever holds them.
  void skip();
  // What became of the results, between synchronize() and end().
  Results& results() { return *results_; }
  // The optimizer's zero_grad(false) has run.
  void note_zeroed();

  // What is saved is of before a step under way. Waits for its results; the step goes on.
  std::vector<std::uint8_t> save();
  // Drops a step under way, or one that failed.
  void load(const std::vector<std::uint8_t>& state);
  // Empties the memories; a step that was not taken yet is forgotten.
  void let_go();

  // True when a backward has run since the last synchronize.
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
  void compare_parameters() const;
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
  std::vector<Slot> slots_;
  std::vector<const void*> hooks_;       // of slots_, as far as they are laid
  std::vector<unsigned> earlier_hooks_;  // the same, those that run before
  std::shared_ptr<GradientSet> set_;
  std::unique_ptr<Results> results_;
  std::unique_ptr<Deferred> deferred_;
  std::vector<std::optional<double>> told_rates_;
  bool told_momentum_ = false;
  bool agreed_ = false;
  std::mutex mutex_;  // of error_, and several threads of autograd may begin a step
  std::exception_ptr error_;
};

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_EXCHANGE_HPP
