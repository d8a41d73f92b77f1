// The two ways of a tensor's values into the core: the core reads the tensor by address, or reads a
// copy.
#ifndef PENSTOCK_LIBTORCH_MEMORY_HPP
#define PENSTOCK_LIBTORCH_MEMORY_HPP

#include <ATen/core/Tensor.h>

namespace penstock::torch {

// True if a copy of the tensor can have its values: it is dense, on the CPU or on CUDA.
bool has_dense_values(const at::Tensor& tensor);

// True if the values lie in the tensor's memory as they are, in any order, and a change of them can
// be noticed. False for a lazy sign or conjugation, zeros without memory, and inference tensors.
bool holds_its_values(const at::Tensor& tensor);

// True if the core may read and write the values at the tensor's address: they lie there as they
// are, one after another.
bool readable_by_address(const at::Tensor& tensor);

// A copy of the values, on the tensor's device or in host memory, that is readable by address.
at::Tensor plain_copy(const at::Tensor& tensor, const at::Device& device);

// The tensor itself if it is in host memory and readable by address, else a copy there.
at::Tensor in_host_memory(const at::Tensor& tensor);

// False if elements share memory, as after expand(), or have none.
bool may_be_written(const at::Tensor& tensor);

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_MEMORY_HPP
