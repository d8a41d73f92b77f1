// Whether gradients were zeroed: the one question for which their values are read.
#ifndef PENSTOCK_LIBTORCH_ZEROS_HPP
#define PENSTOCK_LIBTORCH_ZEROS_HPP

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace penstock::torch {

// For each of these dense tensors of real numbers: not 0 where all of it is zero, of either sign;
// one without elements is not. In memory of the host, reading ends at the first other element. On a
// device all of them are read, and the host waits once for all. torch's profiler shows each call as
// "penstock::are_zero".
std::vector<std::uint8_t> are_zero(const std::vector<at::Tensor>& tensors);

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_ZEROS_HPP
