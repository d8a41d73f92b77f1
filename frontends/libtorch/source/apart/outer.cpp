// The outer step.

#include "outer.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "../door.hpp"

namespace penstock::torch {

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

void in_parts(Parts tensors, const std::function<void(const Parts&)>& call) {
  constexpr std::int64_t kPart = 1 << 15;  // elements
  const bool may_be_cut = std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& one) {
    return !one.defined() || (one.is_cpu() && one.is_contiguous());
  });
  if (!may_be_cut) return call(tensors);
  const std::int64_t n = tensors[0].numel();
  for (at::Tensor& one : tensors)
    if (one.defined()) one = one.view(-1);
  for (std::int64_t first = 0; first < n; first += kPart) {
    Parts parts = tensors;
    for (at::Tensor& one : parts)
      if (one.defined()) one = one.narrow(0, first, std::min(kPart, n - first));
    call(parts);
  }
}

at::Tensor is_finite(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return at::ones({}, at::kBool);
  if (tensor.is_cpu()) {
    // A sum is the quickest sweep. It is finite only if all elements are.
    const at::Tensor total = tensor.sum().isfinite();
    if (total.item<bool>()) return total;
  }
  // A NaN is both the least and the largest. This is one sweep; isfinite() of all is several.
  const auto [least, largest] = at::aminmax(tensor);
  return at::stack({least, largest}).isfinite().all();
}

// Products and sums are rounded apart. A fused operation (the argument `alpha`) gives other bits on
// another kind of processor, and anchors must have equal bits on all ranks. The operations and
// their order are those of the Python frontend, so anchors have its bits too.
void move_anchor(const OuterStep& outer, const at::Tensor& anchor, const at::Tensor& drift,
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

}  // namespace penstock::torch
