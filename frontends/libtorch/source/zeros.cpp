// Tests whether gradients are zero.

#include "zeros.hpp"

#include <ATen/Functions.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>

#include "memory.hpp"

namespace penstock::torch {
namespace {

// A mask of all bits of an element except its sign.
std::uint64_t magnitude_bits(std::size_t bytes) {
  return (std::uint64_t{1} << (8 * bytes - 1)) - 1;
}

bool is_zero_on_host(const at::Tensor& tensor) {
  // The order of the elements does not matter, because every element must be zero.
  const bool is_dense = tensor.is_non_overlapping_and_dense() && holds_its_values(tensor);
  const at::Tensor dense = is_dense ? tensor : plain_copy(tensor, at::kCPU);
  const std::size_t step = dense.element_size(), n = dense.nbytes();
  const bool has_sign = dense.is_floating_point();
  const auto* bytes = static_cast<const std::uint8_t*>(dense.data_ptr());
  for (std::size_t at = 0; at < n; at += step) {
    std::uint64_t element = 0;
    std::memcpy(&element, bytes + at, step);
    if ((has_sign ? element & magnitude_bits(step) : element) != 0) return false;
  }
  return n != 0;
}

}  // namespace

std::vector<std::uint8_t> are_zero(const std::vector<at::Tensor>& tensors) {
  std::vector<std::uint8_t> zero(tensors.size());
  if (tensors.empty()) return zero;
  RECORD_FUNCTION("penstock::are_zero", c10::ArrayRef<const c10::IValue>{});
  std::map<std::int64_t, std::vector<std::size_t>> on_devices;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].is_cpu())
      zero[i] = is_zero_on_host(tensors[i]);
    else if (tensors[i].numel() != 0)
      on_devices[tensors[i].get_device()].push_back(i);
  }
  for (const auto& [device, numbers] : on_devices) {
    std::vector<at::Tensor> any;
    for (const std::size_t i : numbers) any.push_back(tensors[i].any());
    const at::Tensor answers = at::stack(any).cpu();
    for (std::size_t k = 0; k < numbers.size(); ++k)
      zero[numbers[k]] = !answers.data_ptr<bool>()[k];
  }
  return zero;
}

}  // namespace penstock::torch
