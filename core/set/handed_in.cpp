#include "core/set/handed_in.hpp"

#include "core/tensor/check.hpp"
#include "core/tensor/dtype.hpp"

#include <fmt/format.h>

#include <cstring>

namespace penstock {

Status check_handed_in(const Gradient& gradient, const penstock_tensor& tensor) {
  const Status fault = storage_fault(tensor, gradient.lies_on);
  if (!fault.ok())
    return Status(fault.code(), fmt::format("gradient '{}' {}", gradient.name, fault.message()));
  if (tensor.dtype != gradient.dtype)
    return invalid_argument("gradient '{}' is {}, but was declared as {}", gradient.name,
                            dtype_name(tensor.dtype), dtype_name(gradient.dtype));
  if (tensor.numel != gradient.numel)
    return invalid_argument("gradient '{}' has {} elements, but was declared with {}",
                            gradient.name, tensor.numel, gradient.numel);
  return {};
}

void zero_if_here(const Gradient& gradient, const penstock_tensor& tensor) {
  if (tensor.data != nullptr && tensor.device_type == PENSTOCK_DEVICE_CPU &&
      check_handed_in(gradient, tensor).ok())
    std::memset(tensor.data, 0, tensor.numel * dtype_bytes(tensor.dtype));
}

}  // namespace penstock
