// Which memory of torch's tensors the core may use.

#include "memory.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "devices.hpp"

namespace penstock::torch {
namespace {

// The keys of a new, dense tensor on any device. torch marks with further keys what the memory of a
// tensor means: negated or conjugated lazily, zeros without memory, sparse, nested, quantized. A
// property that a later torch adds has a key of its own, too.
c10::DispatchKeySet usual_keys() {
  static const c10::DispatchKeySet keys = [] {
    const c10::InferenceMode off(false);  // a tensor of this mode has fewer keys
    return at::empty({0}).key_set() | c10::autocast_dispatch_keyset;
  }();
  return keys;
}

}  // namespace

bool has_dense_values(const at::Tensor& tensor) {
  return place_of(tensor.device()) && tensor.layout() == at::kStrided && !tensor.is_quantized() &&
         !tensor.is_nested();
}

bool holds_its_values(const at::Tensor& tensor) {
  // A difference of key sets keeps the device, which is no functionality.
  const c10::DispatchKeySet unusual = tensor.key_set() - usual_keys();
  return unusual.highestFunctionalityKey() == c10::DispatchKey::Undefined && !tensor.is_inference();
}

bool readable_by_address(const at::Tensor& tensor) {
  return holds_its_values(tensor) && tensor.is_contiguous();
}

at::Tensor plain_copy(const at::Tensor& tensor, const at::Device& device) {
  return at::empty(tensor.sizes(), at::TensorOptions().dtype(tensor.scalar_type()).device(device))
      .copy_(tensor);
}

at::Tensor in_host_memory(const at::Tensor& tensor) {
  return tensor.is_cpu() && readable_by_address(tensor) ? tensor : plain_copy(tensor, at::kCPU);
}

bool may_be_written(const at::Tensor& tensor) {
  if (tensor._is_zerotensor()) return false;
  std::vector<std::pair<std::int64_t, std::int64_t>> dimensions;  // stride and extent
  for (std::int64_t i = 0; i < tensor.dim(); ++i)
    dimensions.emplace_back(tensor.stride(i), tensor.size(i));
  std::sort(dimensions.begin(), dimensions.end());
  std::int64_t reach = 0;  // the distance from the first to the last element in these dimensions
  for (const auto& [stride, extent] : dimensions) {
    if (extent > 1 && stride <= reach) return tensor.numel() == 0;
    reach += stride * (extent - 1);
  }
  return true;
}

}  // namespace penstock::torch
