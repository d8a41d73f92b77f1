// A fragment of the parameters, and the exchange of its drift.

#include "fragment.hpp"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "../world.hpp"
#include "outer.hpp"

namespace penstock::torch {
namespace {

bool has_16_bits(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16;
}

// Memory for the anchor of a parameter.
at::Tensor anchor_for(const NamedParameter& one, bool on_host) {
  const at::Device device = one.tensor.device();
  if (!place_of(device))
    refuse_argument("parameter " + one.name + " is on " + device.str() +
                    ", expected the CPU or CUDA: the libtorch frontend exchanges nothing else yet; "
                    "move the module there with module->to(torch::kCPU) before LocalSteps is made");
  const at::Tensor values = values_of(one.tensor);
  const at::ScalarType type = has_16_bits(values.scalar_type()) ? at::kFloat : values.scalar_type();
  return at::empty(values.sizes(),
                   at::TensorOptions().dtype(type).device(on_host ? at::Device(at::kCPU) : device));
}

// The tensor in the place and the element type of `anchor`.
at::Tensor beside(const at::Tensor& tensor, const at::Tensor& anchor) {
  return tensor.to(anchor.device(), anchor.scalar_type());
}

}  // namespace

at::Tensor values_of(const at::Tensor& parameter) {
  const at::Tensor plain = parameter.detach();
  return plain.is_complex() ? at::view_as_real(plain) : plain;
}

Fragment::Fragment(std::vector<NamedParameter> named, const OuterStep& outer,
                   const std::string& scheme, bool on_host, const Ranks& ranks,
                   const std::string& agreement)
    : named_(std::move(named)) {
  const at::NoGradGuard without_history;
  std::vector<GradientSpec> specs;
  for (const NamedParameter& one : named_) {
    const std::uint64_t number = slots_.size();
    slots_.emplace_back(number, one.name, anchor_for(one, on_host), one.group);
    specs.push_back(slots_.back().spec());
    numbers_.push_back(number);
  }
  std::uint32_t flags = PENSTOCK_SET_REPORTS_OUTCOME;
  if (keeps_momentum(outer)) flags |= PENSTOCK_SET_OPTIMIZER_MOMENTUM;
  set_ = create_set("local steps", specs, flags, scheme, ranks, agreement);
  set_->call(penstock_set_passes, std::uint32_t{1}, std::uint64_t{0});
  tell(outer);
}

std::vector<at::Tensor> Fragment::anchors() const {
  std::vector<at::Tensor> all;
  for (const Slot& slot : slots_) all.push_back(slot.parameter);
  return all;
}

void Fragment::tell(const OuterStep& outer) {
  const std::vector<double> rates(slots_.size(), outer.lr);
  set_->call(penstock_set_learning_rates, rates.data(), std::uint64_t{rates.size()});
}

void Fragment::take_anchors(bool with_momentum) {
  if (std::exchange(has_anchors_, true)) return;
  const at::NoGradGuard without_history;
  for (const Slot& slot : slots_) {
    slot.parameter.copy_(values_of(named_[slot.index].tensor));
    if (with_momentum) momenta_.push_back(at::zeros_like(slot.parameter));
  }
}

// ---- an exchange ----

void Fragment::start(const std::string& agreement) {
  const at::NoGradGuard without_history;
  // Memory comes first: without enough of it nothing has begun, and a later call may succeed.
  std::vector<at::Tensor> rooms;
  for (const Slot& slot : slots_) rooms.push_back(room_for(slot));
  set_->call(penstock_step_begin);
  const std::string shared = agreement + frozen();
  set_->call(penstock_set_agree, view(shared));
  is_there_ = false;
  results_ = std::move(rooms);
  or_none([this] {
    for (Slot& slot : slots_) {
      slot.parameter.mutable_grad() = drift_of(slot);
      slot.submit(*set_);
    }
  });
}

std::string Fragment::frozen() const {
  constexpr std::size_t kMostNames = 20;
  std::string names;
  std::size_t n = 0;
  for (const NamedParameter& one : named_) {
    if (one.tensor.requires_grad()) continue;
    names += (n++ == 0 ? "" : ", ") + one.name;
  }
  if (n == 0) return "frozen parameters = none\n";
  if (n <= kMostNames) return "frozen parameters = " + names + "\n";
  return "frozen parameters = " + std::to_string(n) + " of " + std::to_string(named_.size()) +
         ", checksum " + std::to_string(penstock_checksum(names.data(), names.size())) + "\n";
}

at::Tensor Fragment::drift_of(const Slot& slot) {
  const at::Tensor& anchor = slot.parameter;
  const at::Tensor& parameter = named_[slot.index].tensor;
  at::Tensor drift = results_[slot.index];
  if (!parameter.requires_grad()) return drift.zero_();
  const at::Tensor values = values_of(parameter);
  // The parameter started from the rounded anchor. What rounding took must not count as drift.
  const at::Tensor rounded = anchor.to(values.scalar_type());
  at::sub_out(drift, beside(rounded, anchor), beside(values, anchor));
  return drift;
}

at::Tensor Fragment::room_for(const Slot& slot) {
  if (slot.is_on_device()) return at::empty_like(slot.parameter);
  rooms_.resize(slots_.size());
  at::Tensor& room = rooms_[slot.index];
  if (!room.defined()) room = at::empty_like(slot.parameter);
  return room;
}

void Fragment::wait() {
  if (is_there_ || !is_under_way()) return;
  or_none([this] { finish(); });
}

void Fragment::or_none(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error&) {
    // A set that is torn may still write into them, until it is destroyed.
    abandoned_.insert(abandoned_.end(), results_.begin(), results_.end());
    clear();
    throw;
  }
}

void Fragment::finish() {
  const at::NoGradGuard without_history;
  wait_for_results();
  try {
    set_->call(penstock_set_agreed);
  } catch (const Error&) {
    set_->call(penstock_step_end, std::uint32_t{PENSTOCK_STEP_FORGOTTEN});
    throw;
  }
  for (Slot& slot : slots_) slot.finish();
  judge();
  const std::uint64_t count = numbers_.size();
  // A result that is not finite is thrown away, so its residual becomes what it was.
  set_->call(penstock_optimizer_step, numbers_.data(), std::as_const(gone_).data(), count,
             std::uint32_t{PENSTOCK_OPTIMIZER_BEGINS});
  set_->call(penstock_optimizer_step, numbers_.data(), nullptr, count,
             std::uint32_t{PENSTOCK_OPTIMIZER_ENDS});
  set_->call(penstock_step_end, std::uint32_t{PENSTOCK_STEP_AS_SEEN});
}

// If any drift lies on a device, the streams wait, not the host.
void Fragment::wait_for_results() {
  const bool on_devices = std::any_of(slots_.begin(), slots_.end(),
                                      [](const Slot& slot) { return slot.is_on_device(); });
  if (!on_devices) return set_->call(penstock_wait_all);
  for (Slot& slot : slots_) slot.wait(*set_);
}

void Fragment::judge() {
  gone_.clear();
  for (const bool is_finite : are_finite(results_)) gone_.push_back(is_finite ? 0 : 1);
  is_there_ = true;
}

std::vector<std::string> Fragment::land(const OuterStep& outer, double mix) {
  wait();
  const at::NoGradGuard without_history;
  std::vector<std::string> causes;
  for (std::size_t i = 0; i < named_.size(); ++i) {
    if (!named_[i].tensor.requires_grad()) continue;
    const at::Tensor values = values_of(named_[i].tensor);
    const at::Tensor& anchor = slots_[i].parameter;
    if (gone_[i] != 0) {
      causes.push_back(values.isfinite().all().item<bool>() ? "" : named_[i].name);
      values.copy_(anchor);
    } else {
      const at::Tensor momentum = momenta_.empty() ? at::Tensor() : momenta_[i];
      take_outer_step(outer, anchor, results_[i], momentum, values, mix);
    }
  }
  clear();
  return causes;
}

void Fragment::forget() {
  if (is_under_way() && !is_there_) {
    set_->call(penstock_wait_all);
    set_->call(penstock_step_end, std::uint32_t{PENSTOCK_STEP_FORGOTTEN});
  }
  clear();
}

void Fragment::clear() {
  for (Slot& slot : slots_) {
    slot.rewind();
    slot.parameter.mutable_grad().reset();
  }
  results_.clear();
  gone_.clear();
  is_there_ = false;
}

// ---- a saved state ----

void Fragment::restore(const std::vector<at::Tensor>& anchors,
                       const std::vector<at::Tensor>& momenta,
                       const std::vector<at::Tensor>& results) {
  const at::NoGradGuard without_history;
  const auto copied = [this](const std::vector<at::Tensor>& saved) {
    std::vector<at::Tensor> all;
    for (std::size_t i = 0; i < saved.size(); ++i)
      all.push_back(at::empty_like(slots_[i].parameter).copy_(saved[i]));
    return all;
  };
  for (std::size_t i = 0; i < anchors.size(); ++i) slots_[i].parameter.copy_(anchors[i]);
  has_anchors_ = true;
  momenta_ = copied(momenta);
  results_ = copied(results);
  if (is_under_way()) judge();
}

}  // namespace penstock::torch
