// The outer step: the update of the anchors from the mean drift of the ranks.
//
// Source: Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models",
// 2023, algorithm 1.
#ifndef PENSTOCK_LIBTORCH_APART_OUTER_HPP
#define PENSTOCK_LIBTORCH_APART_OUTER_HPP

#include <ATen/core/Tensor.h>
#include <penstock/torch.hpp>

#include <optional>
#include <string>
#include <vector>

namespace penstock::torch {

// The shortest text from which the number can be read back, for messages.
std::string number_text(double number);

// The outer step of an argument; an empty argument averages the parameters. Throws for a learning
// rate that is not above 0, or a momentum outside [0, 1).
OuterStep checked(const std::optional<OuterStep>& outer);

// True if the outer step keeps a momentum for each parameter.
inline bool keeps_momentum(const OuterStep& outer) {
  return outer.momentum > 0;
}

// For each tensor, whether no element is infinite or NaN. Tensors on a device are queued together,
// and then the host waits.
std::vector<bool> are_finite(const std::vector<at::Tensor>& tensors);

// Changes `anchor` and `momentum` in place, and moves `values`, the parameter itself, to mix *
// values + (1 - mix) * anchor, in the anchor's element type. May change `drift`, the mean of the
// ranks. `anchor`, `drift` and `momentum` are contiguous, with one shape, element type and device.
// `momentum` is undefined if the outer step has no momentum. Call it with gradient mode off.
void take_outer_step(const OuterStep& outer, const at::Tensor& anchor, const at::Tensor& drift,
                     const at::Tensor& momentum, const at::Tensor& values, double mix);

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_APART_OUTER_HPP
