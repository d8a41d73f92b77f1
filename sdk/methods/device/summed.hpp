// Methods on a device whose payloads are summed on the way: values that go as they are, and casts
// to 16 bits.
#pragma once

#include <kernels/cuda/dense.hpp>
#include <kernels/cuda/values.hpp>
#include <kernels/narrow_values.hpp>
#include <methods/device/call.hpp>

namespace penstock::sdk::device {

inline void copy_bytes(const Call& call, const Item& item, const void* source, void* target,
                       uint64_t bytes) {
  queue_on_device(call, item, "copy", [&](void* stream) {
    return kernels::cuda::dense::copy(source, target, bytes, stream);
  });
}

inline void clear_bytes(const Call& call, const Item& item, void* target, uint64_t bytes) {
  queue_on_device(call, item, "clear",
                  [&](void* stream) { return kernels::cuda::dense::clear(target, bytes, stream); });
}

inline void clear_floats(const Call& call, const Item& item, std::span<float> target) {
  clear_bytes(call, item, target.data(), target.size_bytes());
}

// out = scale * values.
inline void copy_scaled(const Call& call, const Item& item, std::span<const float> values,
                        float scale, std::span<float> out) {
  queue_on_device(call, item, "copy the sum of", [&](void* stream) {
    return kernels::cuda::dense::copy_scaled(values.data(), out.data(), out.size(), scale, stream);
  });
}

// All of work, after `fold`, unless that is null; where the item keeps, out of work.
inline void send_all(const Call& call, const Item& item, std::span<float> sent,
                     const kernels::Fold* fold) {
  using kernels::cuda::dense::Left;
  const std::span<float> work = item.work();
  queue_on_device(call, item, "copy", [&](void* stream) {
    return kernels::cuda::dense::send_all(work.data(), sent.data(), work.size(),
                                          item.keeps() ? Left::kNothing : Left::kAll, stream, fold);
  });
}

// ---- Casts to 16 bits; `type` is one of those ----

// Work rounded; where the item keeps, within `limit`, and out of work.
inline void narrow(const Call& call, const Item& item, kernels::ValueType type, float limit,
                   std::span<uint16_t> bits) {
  const std::span<float> work = item.work();
  queue_on_device(call, item, "round", [&](void* stream) {
    if (item.keeps())
      return kernels::cuda::take_narrow(type, work.data(), bits.data(), work.size(), limit, stream);
    return type == kernels::ValueType::kFloat16
               ? kernels::cuda::floats_to_halves(work.data(), bits.data(), work.size(), stream)
               : kernels::cuda::floats_to_bfloat16s(work.data(), bits.data(), work.size(), stream);
  });
}

// out = scale * bits.
inline void widen(const Call& call, const Item& item, kernels::ValueType type,
                  std::span<const uint16_t> bits, float scale, std::span<float> out) {
  queue_on_device(call, item, "widen the sum of", [&](void* stream) {
    return kernels::cuda::widen_scaled(type, bits.data(), out.data(), out.size(), scale, stream);
  });
}

}  // namespace penstock::sdk::device
