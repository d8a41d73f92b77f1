// Deferred updates, which wait for the next forward.

#include "deferred.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <utility>

#include "world.hpp"

namespace penstock::torch {
namespace {

// Never destroyed, because the exit of the process may call flush_all() after the destructors of
// statics.
std::vector<Deferred*>& live() {
  static auto& all = *new std::vector<Deferred*>;
  return all;
}

using GroupOptions = std::vector<std::unique_ptr<::torch::optim::OptimizerOptions>>;

GroupOptions options_of(::torch::optim::Optimizer& optimizer) {
  GroupOptions all;
  for (const auto& group : optimizer.param_groups())
    all.push_back(group.has_options() ? group.options().clone() : nullptr);
  return all;
}

void set_options(::torch::optim::Optimizer& optimizer, const GroupOptions& options) {
  for (std::size_t g = 0; g < options.size(); ++g)
    if (options[g] != nullptr) optimizer.param_groups()[g].set_options(options[g]->clone());
}

}  // namespace

Deferred::Deferred(::torch::optim::Optimizer& optimizer, std::vector<Slot>& slots,
                   const GradientSet& set)
    : optimizer_(optimizer), slots_(slots), set_(set) {
  live().push_back(this);
  before_shutdown(flush_all);
}

Deferred::~Deferred() {
  live().erase(std::find(live().begin(), live().end(), this));
}

void flush_all() {
  for (Deferred* one : live()) one->flush();
}

// ---- the step ----

void Deferred::promise() {
  options_ = options_of(optimizer_);
  std::set<std::size_t> untold;
  for (std::size_t number = 0; number < slots_.size(); ++number) {
    slots_[number].put_off();
    waiting_.insert(number);
    if (!told_.contains(number)) untold.insert(number);
  }
  apply(untold);
}

void Deferred::check_used(std::size_t number) const {
  if (!waiting_.contains(number)) return;
  refuse_moment("parameter " + slots_[number].name +
                " was used in a forward before its update: call optimizer.before_forward(module) "
                "before each use of its module, or optimizer.flush() before the forward");
}

void Deferred::forget() {
  for (const std::size_t number : waiting_) slots_[number].rewind();
  waiting_.clear();
}

// ---- the next forward ----

void Deferred::before_forward(const std::vector<at::Tensor>& parameters) {
  std::map<const void*, std::size_t> number_of;
  for (std::size_t number = 0; number < slots_.size(); ++number)
    number_of.emplace(slots_[number].parameter.unsafeGetTensorImpl(), number);
  std::set<std::size_t> wanted;
  for (const at::Tensor& parameter : parameters) {
    const auto found = number_of.find(parameter.unsafeGetTensorImpl());
    if (found == number_of.end()) continue;
    told_.insert(found->second);
    if (waiting_.contains(found->second)) wanted.insert(found->second);
  }
  apply(wanted);
}

void Deferred::flush() {
  apply(std::set<std::size_t>(waiting_));
}

// Only the results arrive here. A parameter that the forward has not announced is updated when
// backward is over, because autograd still needs the values that the forward has used.
void Deferred::settle() {
  arrive(waiting_);
}

// ---- results and updates ----

void Deferred::arrive(const std::set<std::size_t>& numbers) {
  const at::NoGradGuard without_history;
  for (const std::size_t number : numbers) slots_[number].arrive(set_);
}

void Deferred::apply(const std::set<std::size_t>& numbers) {
  if (numbers.empty()) return;
  const at::NoGradGuard without_history;
  arrive(numbers);
  std::vector<std::pair<at::Tensor, at::Tensor>> newer;  // gradients of the step after
  for (Slot& slot : slots_) {
    newer.emplace_back(slot.parameter, slot.parameter.grad());
    slot.parameter.mutable_grad().reset();
  }
  for (const std::size_t number : numbers) {
    waiting_.erase(number);
    slots_[number].parameter.mutable_grad() = slots_[number].take_result();
  }
  step_with_promised_options();
  for (auto& [parameter, gradient] : newer) parameter.mutable_grad() = gradient;
}

void Deferred::step_with_promised_options() {
  const GroupOptions now = options_of(optimizer_);
  set_options(optimizer_, options_);
  optimizer_.step();
  set_options(optimizer_, now);
}

}  // namespace penstock::torch
