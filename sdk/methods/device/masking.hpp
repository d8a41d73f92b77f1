// Momentum that is forgotten where it was sent, on a device.
#pragma once

#include <kernels/cuda/masking.hpp>
#include <methods/device/call.hpp>

namespace penstock::sdk::device {

using kernels::cuda::Masked;

// What was sent of `masked`, whose lists of masked entries have room for `room` of them.
inline void mask(const Call& call, const Item& item, const Masked& masked,
                 const PayloadReader& taken, uint64_t room, uint64_t mark) {
  queue_on_device(call, item, "mask the momentum of", [&](void* stream) {
    if (taken.kind() == PENSTOCK_PAYLOAD_DENSE)
      return kernels::cuda::mask_all(masked, mark, stream);
    const std::span<const uint32_t> indices = taken.section<uint32_t>(0);
    const auto by =
        indices.size() > room ? kernels::cuda::mask_entries_of_all : kernels::cuda::mask_entries;
    return by(masked, indices.data(), indices.size(), mark, stream);
  });
}

inline void unmask(const Call& call, const Item& item, const Masked& masked, uint64_t mark) {
  queue_on_device(call, item, "give momentum back to",
                  [&](void* stream) { return kernels::cuda::unmask(masked, mark, stream); });
}

}  // namespace penstock::sdk::device
