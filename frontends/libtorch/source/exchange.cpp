// The gradients of one optimizer between backward and update.

#include "exchange.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "apart/rounds.hpp"
#include "later_advice.hpp"
#include "memory.hpp"
#include "world.hpp"

namespace penstock::torch {
namespace {

constexpr std::string_view kAdvice =
    "Call penstock::torch::broadcast_parameters(*model) before training, or set "
    "Options::check_parameters = false if they are meant to differ.";

}  // namespace

Exchange::Exchange(::torch::optim::Optimizer& optimizer, const NamedTensors& named,
                   const Options& options)
    : optimizer_(optimizer),
      options_(options),
      named_(name_parameters(optimizer, named)),
      n_parameters_(count_parameters(optimizer)) {
  if (options_.backward_passes_per_step == 0)
    refuse_argument("backward_passes_per_step is 0, expected at least 1");
  std::vector<GradientSpec> specs;
  for (const NamedParameter& one : named_) {
    if (!one.tensor.requires_grad()) continue;
    slots_.emplace_back(slots_.size(), one.name, one.tensor, one.group);
    specs.push_back(slots_.back().spec());
  }
  // Before the set is made, which is collective.
  for (const Slot& slot : slots_) refuse_apart(slot.parameter, "a DistributedOptimizer");
  check_hook_places();
  told_momentum_ = options_.momentum.value_or(has_momentum(optimizer));
  std::uint32_t flags = PENSTOCK_SET_REPORTS_OUTCOME;
  if (told_momentum_) flags |= PENSTOCK_SET_OPTIMIZER_MOMENTUM;
  if (options_.sum) flags |= PENSTOCK_SET_SUM;
  if (options_.deferred) flags |= PENSTOCK_SET_DEFERRED_UPDATE;
  set_ = create_set("optimizer", specs, flags, options_.scheme, options_.ranks);
  set_->call(penstock_set_passes, options_.backward_passes_per_step, std::uint64_t{0});
  results_ = std::make_unique<Results>(slots_, *set_);
  if (options_.deferred) deferred_ = std::make_unique<Deferred>(optimizer, slots_, *set_);
  tell_options();
}

Exchange::~Exchange() {
  detach();
  try {
    if (error_ == nullptr) flush();
  } catch (const std::exception&) {
    // The run is over: updates that still waited will not get their results.
  }
  set_->destroy();
}

// ---- the step ----

void Exchange::raise_error() {
  if (error_ != nullptr) std::rethrow_exception(error_);
}

// Opens a step if none is open. The step before ends with the outcome that was observed when
// backward began.
void Exchange::begin() {
  if (is_at(PENSTOCK_PHASE_OPEN)) return;
  if (deferred_ != nullptr) deferred_->settle();
  if (results_->may_be_gone()) results_->look();  // no hook ran: a gradient was set by hand
  end(PENSTOCK_STEP_AS_SEEN);
  if (set_->comparison_due()) compare_parameters(kLaterAdvice);
  tell_options();
  if (scale_ != told_scale_) set_->call(penstock_set_grad_scale, scale_);
  told_scale_ = scale_;
  set_->call(penstock_step_begin);
}

// Reports momentum and learning rates to the core if they have changed, for example by a scheduler
// of the learning rate or by loading the optimizer.
void Exchange::tell_options() {
  if (!told_momentum_ && options_.momentum.value_or(has_momentum(optimizer_))) {
    set_->call(penstock_set_momentum);
    told_momentum_ = true;
  }
  const auto rates = learning_rates(optimizer_);
  if (rates == told_rates_) return;
  std::vector<double> of_gradients(slots_.size(), std::numeric_limits<double>::quiet_NaN());
  for (const Slot& slot : slots_)
    if (slot.group < rates.size() && rates[slot.group])
      of_gradients[slot.index] = *rates[slot.group];
  set_->call(penstock_set_learning_rates, of_gradients.data(), std::uint64_t{of_gradients.size()});
  told_rates_ = rates;
}

// Compares the parameters of the ranks. If they differ, warns or throws, depending on
// check_parameters in [runtime]. Without this check, such ranks would silently train different
// models.
void Exchange::compare_parameters(std::string_view advice) const {
  std::vector<penstock_str> names;
  std::vector<std::uint64_t> checksums;
  if (options_.check_parameters) {
    for (const NamedParameter& one : named_) {
      const at::Tensor plain = in_host_memory(one.tensor.detach());
      names.push_back(view(one.name));
      checksums.push_back(penstock_checksum(plain.data_ptr(), plain.nbytes()));
    }
  }
  set_->call(penstock_set_compare_parameters, names.data(), checksums.data(),
             std::uint64_t{names.size()}, view(advice));
}

void Exchange::scale_next(double scale) {
  if (!(scale > 0) || !std::isfinite(scale))
    refuse_argument("set_grad_scale(" + std::to_string(scale) +
                    "): expected a finite factor above 0; 1 means that the loss is not scaled");
  scale_ = scale;
}

void Exchange::check_groups() const {
  if (count_parameters(optimizer_) != n_parameters_)
    refuse_argument(
        "a DistributedOptimizer takes no further parameter groups; add them to the optimizer "
        "before "
        "it is wrapped");
}

// Throws if a parameter that is not in the set has a gradient now: without an exchange, each rank
// would train its own value.
void Exchange::check_frozen() const {
  std::size_t next = 0;
  for (const NamedParameter& one : named_) {
    if (next < slots_.size() && slots_[next].parameter.is_same(one.tensor)) {
      ++next;
    } else if (one.tensor.requires_grad() && one.tensor.grad().defined()) {
      refuse_argument("parameter " + one.name +
                      " did not require gradients when the DistributedOptimizer was made, so that "
                      "its gradient is not averaged over ranks, and it has one now. Make the "
                      "DistributedOptimizer anew, on every rank, after requires_grad was set.");
    }
  }
}

// Hands in the gradients that backward did not complete, so that all ranks take part in all
// gradients.
void Exchange::close_step() {
  raise_error();
  check_groups();
  check_frozen();
  flush();  // parameters that the forward of this step did not use
  for (const Slot& slot : slots_) slot.check_untouched();
  try {
    if (!agreed_) {
      if (size_of(options_.ranks) != 1) compare_parameters(kAdvice);
      agreed_ = true;
    }
    hand_in_the_rest();
  } catch (...) {
    error_ = std::current_exception();
    throw;
  }
}

void Exchange::hand_in_the_rest() {
  begin();
  for (const std::uint64_t index : set_->rest()) {
    Slot& slot = slots_[index];
    if (slot.parameter.grad().defined()) {
      slot.check_gradient();
      slot.submit(*set_);
    } else {
      slot.submit_absent(*set_);
    }
  }
}

bool Exchange::has_results() const {
  const GradientSet::Step step = set_->step();
  return step.phase == PENSTOCK_PHASE_SYNCHRONIZED && !step.has_come;
}

void Exchange::synchronize(bool for_step) {
  const at::NoGradGuard without_history;
  raise_error();
  if (has_results()) return;
  close_step();
  try {
    wait_for_results();
  } catch (...) {
    error_ = std::current_exception();
    throw;
  }
  for (Slot& slot : slots_) slot.finish();
  results_->arrived(!for_step);
}

// If any gradient lies on a device, the streams wait, not the host.
void Exchange::wait_for_results() {
  const bool on_devices = std::any_of(slots_.begin(), slots_.end(),
                                      [](const Slot& slot) { return slot.is_on_device(); });
  if (!on_devices) return set_->call(penstock_wait_all);
  for (Slot& slot : slots_) slot.wait(*set_);
}

bool Exchange::plan_defers() const {
  std::uint32_t defers = 0;
  if (deferred_ != nullptr) set_->call(penstock_set_defers, &defers);
  return defers != 0;
}

bool Exchange::defer() {
  raise_error();
  if (has_results() || !plan_defers()) return false;
  const at::NoGradGuard without_history;
  close_step();
  try {
    set_->call(penstock_backward_end);
    deferred_->promise();
  } catch (...) {
    error_ = std::current_exception();
    throw;
  }
  return true;
}

void Exchange::flush() {
  if (deferred_ != nullptr) deferred_->flush();
}

void Exchange::end(std::uint32_t outcome) {
  if (!is_at(PENSTOCK_PHASE_SYNCHRONIZED) && !is_at(PENSTOCK_PHASE_DEFERRED)) return;
  results_->ended();
  set_->call(penstock_step_end, outcome);
}

void Exchange::conclude(std::uint32_t outcome) {
  synchronize(true);
  try {
    end(outcome);
  } catch (...) {
    error_ = std::current_exception();  // the core's step stays open; only load() can drop it
    throw;
  }
}

void Exchange::note_zeroed() {
  for (Slot& slot : slots_) slot.note_zeroed();
}

// ---- state ----

std::vector<std::uint8_t> Exchange::save() {
  raise_error();
  flush();
  // This also hands in gradients that backward did not reach: after saving, the set takes no more
  // gradients in this step.
  if (is_at(PENSTOCK_PHASE_OPEN)) synchronize(false);
  return set_->save();
}

void Exchange::load(const std::vector<std::uint8_t>& state) {
  if (error_ != nullptr) {
    error_ = nullptr;
    results_->ended();
    if (deferred_ != nullptr) deferred_->forget();
  } else {
    drop_what_is_under_way();
  }
  rewind();
  // If the core refuses the bytes, it leaves the step unchanged.
  set_->load(state);
  results_->ended();
}

void Exchange::let_go() {
  raise_error();
  drop_what_is_under_way();
  rewind();
  set_->call(penstock_set_let_go);
  results_->ended();
}

void Exchange::drop_what_is_under_way() {
  flush();
  if (!is_at(PENSTOCK_PHASE_OPEN)) return;
  for (Slot& slot : slots_) slot.forget_given();
  synchronize(true);
}

void Exchange::rewind() {
  set_->call(penstock_step_restart);
  for (Slot& slot : slots_) slot.rewind();
}

}  // namespace penstock::torch
