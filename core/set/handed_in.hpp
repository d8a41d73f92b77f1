// Checks that a tensor that the application hands in is the declared gradient.
#pragma once

#include "core/bucket/gradient.hpp"

namespace penstock {

// INVALID_ARGUMENT unless the tensor lies where the gradient was declared to lie and has its dtype
// and size.
Status check_handed_in(const Gradient& gradient, const penstock_tensor& tensor);

// Sets the tensor to zero if it is the gradient and lies in host memory.
void zero_if_here(const Gradient& gradient, const penstock_tensor& tensor);

}  // namespace penstock
