// The outer step: the update of the anchors from the mean drift of the ranks.
//
// Source: Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models",
// 2023, algorithm 1.
#ifndef PENSTOCK_LIBTORCH_APART_OUTER_HPP
#define PENSTOCK_LIBTORCH_APART_OUTER_HPP

#include <ATen/core/Tensor.h>
#include <penstock/torch.hpp>

#include <array>
#include <functional>
#include <optional>
#include <string>

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

// Calls `call` for one part of the tensors after the other. The tensors have one shape, or are
// undefined. The operations of a call then find the part in the processor's cache, so memory is
// read and written once and not once for each operation. Tensors on a device, or with gaps, are one
// part.
using Parts = std::array<at::Tensor, 4>;
void in_parts(Parts tensors, const std::function<void(const Parts&)>& call);

// Whether no element is infinite or NaN: one bool, on the tensor's device.
at::Tensor is_finite(const at::Tensor& tensor);

// Changes `anchor` and `momentum` in place. May change `drift`, the mean of the ranks. All three
// have one shape, element type and device. `momentum` is undefined if the outer step has no
// momentum. Call it with gradient mode off.
void move_anchor(const OuterStep& outer, const at::Tensor& anchor, const at::Tensor& drift,
                 const at::Tensor& momentum);

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_APART_OUTER_HPP
