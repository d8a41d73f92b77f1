// Checks of a tensor that a frontend passes, before anything reads it. Each error describes the
// fault without the tensor's name: "has no data for 3 elements". UNIMPLEMENTED for a tensor on a
// device if the CPU is expected.
#pragma once

#include "core/base/status.hpp"
#include "core/tensor/place.hpp"

#include <penstock/item.h>

namespace penstock {

// Checks the storage: at `expected`, of a known dtype, numel elements, contiguous.
Status storage_fault(const penstock_tensor& tensor, const Place& expected);

// Checks the storage on the CPU, and the shape: it must fit into memory and have numel elements.
Status tensor_fault(const penstock_tensor& tensor);

// True if the bytes of `numel` elements exceed a signed size, which underlying libraries use.
bool is_too_large(uint64_t numel, uint64_t element_bytes);

}  // namespace penstock
