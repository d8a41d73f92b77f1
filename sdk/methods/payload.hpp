// Adds a float32 payload, dense or sparse, to an array. Every memory that keeps values does this in
// give_back, and memories with a shift do it in record.
#pragma once

#include <kernels/scatter.hpp>
#include <penstock/views.hpp>

namespace penstock::sdk {

// target += share * payload. Throws INVALID_PAYLOAD for a count, an index or a kind that does not
// fit target, and then leaves target unchanged.
inline void add_payload(const PayloadReader& payload, std::span<float> target, float share = 1) {
  if (payload.kind() == PENSTOCK_PAYLOAD_DENSE) {
    const std::span<const float> values = payload.section<float>(0, target.size());
    for (uint64_t i = 0; i < values.size(); ++i) target[i] += share * values[i];
    return;
  }
  if (payload.kind() != PENSTOCK_PAYLOAD_SPARSE)
    throw payload.error("is of kind ", payload.kind(), ", expected dense or sparse float32");
  const std::span<const uint32_t> indices = payload.section<uint32_t>(0);
  const std::span<const float> values = payload.section<float>(1, indices.size());
  const uint64_t good = kernels::indices_in_range(indices.data(), indices.size(), target.size());
  if (good != indices.size())
    throw payload.error("has index ", indices[good], " at entry ", good, ", expected one below ",
                        target.size());
  for (uint64_t j = 0; j < good; ++j) target[indices[j]] += share * values[j];
}

}  // namespace penstock::sdk
