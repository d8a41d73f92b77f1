// DistributedOptimizer: what its users call, over the exchange.

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <string>
#include <utility>

#include "exchange.hpp"

namespace penstock::torch {

struct DistributedOptimizer::Parts {
  ::torch::optim::Optimizer& optimizer;
  std::shared_ptr<Exchange> exchange;
};

DistributedOptimizer::DistributedOptimizer(::torch::optim::Optimizer& optimizer,
                                           const NamedTensors& named_parameters,
                                           const Options& options)
    : parts_(std::make_unique<Parts>(
          optimizer, std::make_shared<Exchange>(optimizer, named_parameters, options))) {
  Exchange::attach(parts_->exchange);
}
DistributedOptimizer::DistributedOptimizer(DistributedOptimizer&&) noexcept = default;
DistributedOptimizer& DistributedOptimizer::operator=(DistributedOptimizer&&) noexcept = default;
DistributedOptimizer::~DistributedOptimizer() = default;

void DistributedOptimizer::step() {
  parts_->exchange->synchronize();
  parts_->optimizer.step();
  parts_->exchange->end(true);
}

at::Tensor DistributedOptimizer::step(const std::function<at::Tensor()>& closure) {
  at::Tensor loss = parts_->optimizer.step([&] {
    at::Tensor own = closure();
    parts_->exchange->synchronize();
    return own;
  });
  parts_->exchange->end(true);
  return loss;
}

void DistributedOptimizer::zero_grad(bool set_to_none) {
  if (parts_->exchange->touched())
    refuse_moment(
        "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
        "optimizer.synchronize(). This is prohibited as it can cause a race condition.");
  parts_->optimizer.zero_grad(set_to_none);
}

void DistributedOptimizer::synchronize() {
  parts_->exchange->synchronize();
}

void DistributedOptimizer::skip_step() {
  parts_->exchange->synchronize();
  parts_->exchange->end(false);
}

// ---- State, and what there is to tell ----

std::vector<std::uint8_t> DistributedOptimizer::save_state() {
  std::vector<std::uint8_t> state;
  const auto sink = [](void* context, const void* data, std::uint64_t size) {
    const auto* bytes = static_cast<const std::uint8_t*>(data);
    auto* target = static_cast<std::vector<std::uint8_t>*>(context);
    target->insert(target->end(), bytes, bytes + size);
  };
  void (*const pointer)(void*, const void*, std::uint64_t) = sink;
  parts_->exchange->set().call(penstock_set_save, &state, pointer);
  return state;
}

void DistributedOptimizer::load_state(const std::vector<std::uint8_t>& state) {
  parts_->exchange->restart();
  parts_->exchange->set().call(penstock_set_load, state.data(), std::uint64_t{state.size()});
}

Counters DistributedOptimizer::counters() const {
  penstock_counters found{};
  found.struct_size = sizeof found;
  parts_->exchange->set().call(penstock_set_counters, &found);
  return {found.steps,       found.gradient_bytes, found.payload_bytes,
          found.messages,    found.void_buckets,   found.wait_us,
          found.allocations, found.moved_bytes,    found.dense_moved_bytes};
}

std::string DistributedOptimizer::report() const {
  std::string text;
  parts_->exchange->set().call(penstock_set_report, &text, take_text);
  return text;
}

}  // namespace penstock::torch
