// Whether a tensor that the application hands in is the gradient that it says it is.
#pragma once

#include "core/bucket/gradient.hpp"

namespace penstock {

// INVALID_ARGUMENT unless it lies where the gradient was declared to lie, and is of its dtype and
// size.
Status check_handed_in(const Gradient& gradient, const penstock_tensor& tensor);

// Zeros it, where it is the gradient and lies in host memory.
void zero_if_here(const Gradient& gradient, const penstock_tensor& tensor);

}  // namespace penstock
