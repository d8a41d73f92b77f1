// Tests whether gradients are zero. The frontend reads gradient values for this test only.
#ifndef PENSTOCK_LIBTORCH_ZEROS_HPP
#define PENSTOCK_LIBTORCH_ZEROS_HPP

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace penstock::torch {

// For each of these dense tensors of real numbers: not 0 if every element is zero, of either sign.
// A tensor without elements gives 0. In host memory, reading ends at the first nonzero element. On
// a device all elements are read, and the host waits once for all tensors of the device. torch's
// profiler shows each call as "penstock::are_zero".
std::vector<std::uint8_t> are_zero(const std::vector<at::Tensor>& tensors);

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_ZEROS_HPP
