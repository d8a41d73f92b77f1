// The hooks of an exchange on its parameters, which run during backward.

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "exchange.hpp"

namespace penstock::torch {
namespace {

namespace impl = ::torch::autograd::impl;

// Holds a weak pointer, because the parameter must not keep the exchange alive.
class Hook final : public ::torch::autograd::PostAccumulateGradHook {
 public:
  Hook(const std::shared_ptr<Exchange>& exchange, std::size_t number)
      : exchange_(exchange), number_(number) {}

  void operator()(const at::Tensor&) override {
    if (const auto exchange = exchange_.lock()) exchange->on_gradient(number_);
  }

  bool is_live() const {
    const auto exchange = exchange_.lock();
    return exchange != nullptr && exchange->set().alive();
  }

 private:
  std::weak_ptr<Exchange> exchange_;
  std::size_t number_;
};

// True inside torch::autograd::grad, which returns the gradient to its caller and does not change
// the parameter's gradient.
bool is_only_asked_for(const at::Tensor& parameter) {
  const auto* wanted = ::torch::autograd::get_current_graph_task_exec_info();
  if (wanted == nullptr || wanted->empty()) return false;
  const auto found = wanted->find(impl::try_get_grad_accumulator(parameter).get());
  return found == wanted->end() || !found->second.needed_;
}

}  // namespace

void refuse_averaged(const at::Tensor& parameter) {
  if (impl::get_autograd_meta(parameter) == nullptr) return;  // it never required a gradient
  const auto* hook = dynamic_cast<const Hook*>(impl::post_acc_grad_hooks(parameter).get());
  if (hook == nullptr || !hook->is_live()) return;
  refuse_argument(
      "gradients of these parameters are averaged in every step already, by a "
      "DistributedOptimizer, and LocalSteps would exchange the parameters too: give LocalSteps the "
      "plain optimizer, after the DistributedOptimizer was destroyed");
}

void Exchange::attach(const std::shared_ptr<Exchange>& exchange) {
  for (Slot& slot : exchange->slots_) {
    const std::size_t number = exchange->hooks_.size();
    auto hook = std::make_unique<Hook>(exchange, number);
    exchange->hooks_.push_back(hook.get());
    impl::set_post_acc_grad_hooks(slot.parameter, std::move(hook));
    const std::weak_ptr<Exchange> weak = exchange;
    exchange->earlier_hooks_.push_back(slot.parameter.register_hook([weak, number](at::Tensor) {
      if (const auto one = weak.lock()) one->before_gradient(number);
    }));
  }
}

void Exchange::check_hook_places() const {
  for (const Slot& slot : slots_) {
    if (impl::post_acc_grad_hooks(slot.parameter) != nullptr)
      refuse_moment(
          "parameter " + slot.name +
          " already has a hook that runs after its gradient was accumulated, and a tensor "
          "can have only one such hook; destroy the earlier DistributedOptimizer of this "
          "parameter, or remove the other hook");
  }
}

void Exchange::detach() {
  for (std::size_t i = 0; i < hooks_.size(); ++i) {
    // Other code may have replaced this hook since.
    if (impl::post_acc_grad_hooks(slots_[i].parameter).get() == hooks_[i])
      impl::set_post_acc_grad_hooks(slots_[i].parameter, nullptr);
  }
  for (std::size_t i = 0; i < earlier_hooks_.size(); ++i)
    slots_[i].parameter.remove_hook(earlier_hooks_[i]);
  hooks_.clear();
  earlier_hooks_.clear();
}

// The first hook of a backward inspects the results, before backward adds to any gradient. Hooks on
// other threads wait for it.
void Exchange::before_gradient(std::size_t number) {
  if (!results_->may_be_gone() || is_only_asked_for(slots_[number].parameter)) return;
  const std::lock_guard lock(mutex_);
  if (!results_->may_be_gone() || error_ != nullptr) return;
  try {
    results_->look();
  } catch (...) {
    error_ = std::current_exception();
  }
}

void Exchange::on_gradient(std::size_t number) {
  Slot& slot = slots_[number];
  if (deferred_ != nullptr) deferred_->check_used(number);
  slot.check_gradient();
  std::uint32_t todo = PENSTOCK_GRADIENT_HAND_IN;  // a destroyed set then reports its error
  if (set_->alive()) set_->call(penstock_gradient_came, slot.index, nullptr, nullptr, &todo);
  if (todo == PENSTOCK_GRADIENT_HELD) slot.note();
  if (todo == PENSTOCK_GRADIENT_BEGIN) submit(slot, true);
  if (todo == PENSTOCK_GRADIENT_HAND_IN) submit(slot, false);
}

// Keeps errors for synchronize(), because an exception on autograd's threads could get lost.
void Exchange::submit(Slot& slot, bool begins) {
  const std::lock_guard lock(mutex_);
  if (error_ != nullptr) return;
  try {
    if (begins) begin();
    slot.submit(*set_);
  } catch (...) {
    error_ = std::current_exception();
  }
}

}  // namespace penstock::torch
