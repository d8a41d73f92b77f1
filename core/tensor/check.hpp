// What a tensor that a frontend hands over must be before anything reads it. Each says what is to
// be said of the tensor, without its name: "has no data for 3 elements". UNIMPLEMENTED for one on a
// device where the CPU is expected.
#pragma once

#include "core/base/status.hpp"
#include "core/tensor/place.hpp"

#include <penstock/item.h>

namespace penstock {

// Of where its elements are: at `expected`, of a known dtype, numel of them, without gaps.
Status storage_fault(const penstock_tensor& tensor, const Place& expected);

// Of that on the CPU, and of its shape: one that memory can hold and that has numel elements.
Status tensor_fault(const penstock_tensor& tensor);

// True when `numel` elements are more than a signed size can count, which libraries underneath use.
bool is_too_large(uint64_t numel, uint64_t element_bytes);

}  // namespace penstock
