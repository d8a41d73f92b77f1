// Clears the momentum of sent entries, on a device.
#pragma once

#include <kernels/cuda/masking.hpp>
#include <methods/device/sparse.hpp>

namespace penstock::sdk::device {

// Sets `momentum` to zero: every entry for a dense payload, the sent entries for a sparse payload,
// whose indices are this rank's own.
inline void mask(const Call& call, const Item& item, const PayloadReader& taken,
                 std::span<float> momentum) {
  if (momentum.empty()) return;
  if (taken.kind() == PENSTOCK_PAYLOAD_DENSE) return clear(call, item, momentum);
  if (taken.kind() != PENSTOCK_PAYLOAD_SPARSE) return;
  const std::span<const uint32_t> indices = taken.section<uint32_t>(0);
  queue_on_device(call, item, "mask the momentum of", [&](void* stream) {
    return kernels::cuda::mask_entries(momentum.data(), momentum.size(), indices.data(),
                                       indices.size(), stream);
  });
}

}  // namespace penstock::sdk::device
