// Chunks that all ranks choose alike, on a device: their norms, and the values of chosen chunks.
#pragma once

#include <kernels/cuda/chunks.hpp>
#include <kernels/cuda/select.hpp>
#include <kernels/cuda/values.hpp>
#include <methods/device/sparse.hpp>
#include <methods/summed_values.hpp>

#include <algorithm>

namespace penstock::sdk::device {

using kernels::cuda::ChosenChunks;

// Scratch for the functions below, which use it behind its first `used` bytes.
inline uint64_t chunk_scratch_bytes(uint64_t n, uint64_t chunk, uint64_t chunks, uint64_t kept,
                                    uint64_t used) {
  return std::max(kernels::cuda::chunk_norms_workspace_bytes(n, chunk),
                  used + kernels::cuda::select_workspace_bytes(chunks, kept));
}

inline void chunk_norms(const Call& call, const Item& item, uint64_t chunk, float* norms) {
  queue_on_device(call, item, "sum chunks of", [&](void* stream) {
    return kernels::cuda::chunk_norms(item.work().data(), item.numel(), chunk, norms,
                                      workspace_of(call), stream);
  });
}

// indices[kept] = the chunks of the largest norms, ascending; ties go to the lower chunk. Uses the
// scratch behind its first `used` bytes.
inline void choose_chunks(const Call& call, const Item& item, std::span<const float> norms,
                          std::span<uint32_t> indices, uint64_t used) {
  queue_on_device(call, item, "choose chunks of", [&](void* stream) {
    return kernels::cuda::select_largest(norms.data(), norms.size(), indices.size(), indices.data(),
                                         nullptr, workspace_of(call, used), stream);
  });
}

// Fills section 0 with the values of the chosen chunks. If the item keeps, takes the sent values
// out of work.
inline void take_chunks(const Call& call, const Item& item, const SummedValues& values,
                        const ChosenChunks& chosen, const PayloadWriter& payload) {
  queue_on_device(call, item, "take chunks of", [&](void* stream) {
    return kernels::cuda::take_chunks(values.type(), item.work().data(), chosen,
                                      values.limit_among(call.step->world), item.keeps(),
                                      payload.room<char>(0).data(), stream);
  });
}

// out = the values of `sum` at the chosen chunks, times call.result_scale(), and zeros elsewhere.
inline void spread_chunks(const Call& call, const Item& item, const SummedValues& values,
                          const SummedValues::Sum& sum, const ChosenChunks& chosen) {
  queue_on_device(call, item, "add the payloads of", [&](void* stream) {
    return kernels::cuda::spread_chunks(values.type(), sum.data(), chosen, call.result_scale(),
                                        item.out().data(), stream);
  });
}

// target = values.
inline void copy(const Call& call, const Item& item, std::span<const float> values,
                 std::span<float> target) {
  queue_on_device(call, item, "keep sums of", [&](void* stream) {
    return kernels::cuda::widen_values(kernels::ValueType::kFloat32, values.data(), values.size(),
                                       target.data(), nullptr, stream);
  });
}

}  // namespace penstock::sdk::device
