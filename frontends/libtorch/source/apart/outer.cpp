// The outer step.

#include "outer.hpp"

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "../door.hpp"
#include "../memory.hpp"
#include "../slot.hpp"

namespace penstock::torch {
namespace {

bool has_finite_range(const at::Tensor& tensor) {
  // A NaN is both the least and the largest.
  const auto [least, largest] = at::aminmax(tensor);
  return at::stack({least, largest}).isfinite().all().item<bool>();
}

void* data_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr() : nullptr;
}

// One sweep of the core over all arrays; `momentum` and `values` may be undefined.
void take_on_host(const OuterStep& outer, const at::Tensor& anchor, const at::Tensor& drift,
                  const at::Tensor& momentum, const at::Tensor& values, double mix) {
  penstock_outer_step step{};
  step.struct_size = sizeof step;
  step.anchor = data_of(anchor);
  step.drift = data_of(drift);
  step.momentum = data_of(momentum);
  step.values = data_of(values);
  step.count = static_cast<std::uint64_t>(anchor.numel());
  step.lr = outer.lr;
  step.factor = outer.momentum;
  step.mix = mix;
  step.dtype = *door_dtype(anchor.scalar_type());
  step.nesterov = outer.nesterov ? 1 : 0;
  check(penstock_take_outer_step(&step));
}

// Products and sums are rounded apart. A fused operation (the argument `alpha`) gives other bits on
// another kind of device, and anchors must have equal bits on all ranks. The operations and their
// order are those of the Python frontend, so anchors have its bits too.
void take_on_device(const OuterStep& outer, const at::Tensor& anchor, const at::Tensor& drift,
                    const at::Tensor& momentum) {
  if (momentum.defined()) {
    momentum.mul_(outer.momentum).add_(drift);
    if (outer.nesterov)
      drift.add_(momentum.mul(outer.momentum));
    else
      drift.copy_(momentum);
  }
  if (outer.lr != 1) drift.mul_(outer.lr);
  anchor.sub_(drift);
}

void mix_in(const at::Tensor& values, const at::Tensor& anchor, double mix) {
  if (mix == 0) {
    values.copy_(anchor);
    return;
  }
  const at::Tensor own = values.to(anchor.scalar_type());
  values.copy_(own.mul(mix).add(anchor.to(values.device()).mul(1 - mix)));
}

}  // namespace

std::string number_text(double number) {
  char text[40];
  const auto written = std::to_chars(text, text + sizeof text, number);
  return std::string(text, written.ptr);
}

OuterStep checked(const std::optional<OuterStep>& outer) {
  if (!outer) return {.lr = 1.0, .momentum = 0.0, .nesterov = false};
  if (!(outer->lr > 0 && std::isfinite(outer->lr)))
    refuse_argument("the outer lr is " + number_text(outer->lr) +
                    ", expected a number above 0, such as 0.7");
  if (!(outer->momentum >= 0 && outer->momentum < 1))
    refuse_argument("the outer momentum is " + number_text(outer->momentum) +
                    ", expected a number from 0 to below 1");
  return *outer;
}

std::vector<bool> are_finite(const std::vector<at::Tensor>& tensors) {
  // A sum is the quickest sweep. It is finite only if all elements are.
  std::vector<at::Tensor> totals;
  for (const at::Tensor& one : tensors) totals.push_back(one.sum());
  std::vector<bool> finite;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    finite.push_back(std::isfinite(totals[i].item<double>()) || has_finite_range(tensors[i]));
  return finite;
}

void take_outer_step(const OuterStep& outer, const at::Tensor& anchor, const at::Tensor& drift,
                     const at::Tensor& momentum, const at::Tensor& values, double mix) {
  if (!anchor.is_cpu()) {
    take_on_device(outer, anchor, drift, momentum);
    return mix_in(values, anchor, mix);
  }
  const bool is_alike = values.is_cpu() && values.scalar_type() == anchor.scalar_type();
  const bool in_one_sweep = is_alike && readable_by_address(values);
  take_on_host(outer, anchor, drift, momentum, in_one_sweep ? values : at::Tensor(), mix);
  if (in_one_sweep)
    values.unsafeGetTensorImpl()->bump_version();  // as an operation of torch, for autograd
  else
    mix_in(values, anchor, mix);
}

}  // namespace penstock::torch
