// Values at positions that all ranks draw alike, on a device: encode and decode of random-k.
#pragma once

#include <kernels/cuda/strata.hpp>
#include <methods/device/sparse.hpp>
#include <methods/summed_values.hpp>

namespace penstock::sdk::device {

using kernels::cuda::DrawnStrata;

// Fills section 0 with the values of work at the drawn positions. If the item keeps, takes the sent
// values out of work.
inline void take_drawn(const Call& call, const Item& item, const SummedValues& values,
                       const DrawnStrata& drawn, const PayloadWriter& payload) {
  queue_on_device(call, item, "draw from", [&](void* stream) {
    return kernels::cuda::take_drawn(values.type(), item.work().data(), drawn,
                                     values.limit_among(call.step->world), item.keeps(),
                                     payload.room<char>(0).data(), stream);
  });
}

// out = the values of `sum` at the drawn positions, times `scale` and call.result_scale(), and
// zeros elsewhere.
inline void spread_drawn(const Call& call, const Item& item, const SummedValues& values,
                         const SummedValues::Sum& sum, const DrawnStrata& drawn, float scale) {
  queue_on_device(call, item, "add the payloads of", [&](void* stream) {
    return kernels::cuda::spread_drawn(values.type(), sum.data(), drawn, scale, call.result_scale(),
                                       item.out().data(), stream);
  });
}

}  // namespace penstock::sdk::device
