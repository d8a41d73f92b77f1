// The public calls of DistributedOptimizer, which use the exchange.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <string>
#include <utility>

#include "exchange.hpp"

namespace penstock::torch {
namespace {

constexpr char kArchiveKey[] = "penstock";

}  // namespace

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
  Exchange& exchange = *parts_->exchange;
  if (exchange.defer()) return;
  exchange.synchronize(true);
  // Inspect before the optimizer's step, report after it: an optimizer that throws has used no
  // result.
  const Gone gone = exchange.results().gone_for_step();
  parts_->optimizer.step();
  exchange.results().tell(PENSTOCK_OPTIMIZER_ENDS, gone);
  exchange.end(PENSTOCK_STEP_AS_SEEN);
}

at::Tensor DistributedOptimizer::step(const std::function<at::Tensor()>& closure) {
  flush();
  Exchange& exchange = *parts_->exchange;
  ClosureStep step(exchange.results());
  at::Tensor loss = parts_->optimizer.step([&] {
    at::Tensor own = closure();
    exchange.synchronize(true);
    step.evaluated();
    return own;
  });
  step.ended();
  exchange.end(PENSTOCK_STEP_AS_SEEN);
  return loss;
}

void DistributedOptimizer::zero_grad(bool set_to_none) {
  if (parts_->exchange->touched())
    refuse_moment(
        "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
        "optimizer.synchronize(). This is prohibited as it can cause a race condition.");
  parts_->optimizer.zero_grad(set_to_none);
  if (!set_to_none) parts_->exchange->note_zeroed();
}

void DistributedOptimizer::synchronize() {
  parts_->exchange->synchronize(false);
}

void DistributedOptimizer::skip_step() {
  step_end(Outcome::forget);
}

void DistributedOptimizer::step_end(Outcome outcome) {
  const bool applied = outcome == Outcome::applied;
  parts_->exchange->conclude(applied ? PENSTOCK_STEP_APPLIED : PENSTOCK_STEP_FORGOTTEN);
}

void DistributedOptimizer::set_grad_scale(double scale) {
  parts_->exchange->scale_next(scale);
}

void DistributedOptimizer::let_go() {
  parts_->exchange->let_go();
}

void DistributedOptimizer::before_forward(const ::torch::nn::Module& module) {
  parts_->exchange->raise_error();
  if (Deferred* deferred = parts_->exchange->deferred())
    deferred->before_forward(module.parameters());
}

void DistributedOptimizer::flush() {
  parts_->exchange->raise_error();
  parts_->exchange->flush();
}

// ---- State and reports ----

std::vector<std::uint8_t> DistributedOptimizer::save_state() {
  return parts_->exchange->save();
}

void DistributedOptimizer::load_state(const std::vector<std::uint8_t>& state) {
  parts_->exchange->load(state);
}

void DistributedOptimizer::save(::torch::serialize::OutputArchive& archive) {
  const std::vector<std::uint8_t> state = save_state();
  const at::Tensor bytes = at::empty({static_cast<std::int64_t>(state.size())}, at::kByte);
  std::copy(state.begin(), state.end(), bytes.data_ptr<std::uint8_t>());
  archive.write(kArchiveKey, bytes, /*is_buffer=*/true);
}

void DistributedOptimizer::load(::torch::serialize::InputArchive& archive) {
  at::Tensor bytes;
  if (!archive.try_read(kArchiveKey, bytes, /*is_buffer=*/true) || bytes.scalar_type() != at::kByte)
    refuse_argument(
        "the archive has no tensor \"penstock\" of bytes: it was not written by "
        "DistributedOptimizer::save");
  const at::Tensor own = bytes.contiguous();
  const auto* first = own.data_ptr<std::uint8_t>();
  load_state({first, first + own.numel()});
}

Counters DistributedOptimizer::counters() const {
  return parts_->exchange->set().counters();
}

std::string DistributedOptimizer::report() const {
  return parts_->exchange->set().report();
}

}  // namespace penstock::torch
