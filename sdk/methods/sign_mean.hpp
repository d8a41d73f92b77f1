// Sends entries of one sign as their positions and one mean: the quantised form of RedSync and
// AdaQ. The difference between an entry and the mean stays in work.
#pragma once

#include <methods/device/sign_mean.hpp>
#include <methods/sparse.hpp>

#include <cmath>

namespace penstock::sdk {

// Scratch for a choice among entries of one sign: magnitudes, then the scratch of the selection.
inline uint64_t one_sign_scratch_bytes(uint64_t n, uint64_t most) {
  return whole_lines(n * sizeof(float)) + kernels::select_scratch_bytes(n, most);
}

// Calls choose(choice) on the magnitudes of the item's entries of this sign, with zeros in place of
// the other entries; `most` of the choice is the number of entries of this sign. Returns the
// chosen indices, which lie in `room`.
template <typename Choose>
std::span<uint32_t> choose_of_sign(const Call& call, const Item& item, bool negative,
                                   std::span<uint32_t> room, kernels::CodePath path,
                                   const Choose& choose) {
  const std::span<const float> x = item.work();
  const std::span<float> y = call.scratch<float>(x.size());
  uint64_t of_sign = 0;
  const float sign = negative ? -1.0f : 1.0f;
  for (uint64_t i = 0; i < x.size(); ++i) {
    const float magnitude = sign * x[i];
    y[i] = magnitude > 0 ? magnitude : 0.0f;
    of_sign += magnitude > 0 ? 1 : 0;
  }
  kernels::SelectSegment target{y.data(), y.size(), room.data(), nullptr};
  const auto scratch = select_scratch(call, whole_lines(y.size_bytes()));
  choose(Choice{call, item, {&target, 1}, of_sign, scratch, path});
  return room.first(target.count);
}

// Returns the mean of work at these entries, 0 without entries. If the item keeps, subtracts the
// mean from each entry.
inline float take_mean(const Item& item, std::span<const uint32_t> indices) {
  const std::span<float> work = item.work();
  double sum = 0;
  for (const uint32_t i : indices) sum += work[i];
  if (indices.empty()) return 0;
  const auto mean = static_cast<float>(sum / static_cast<double>(indices.size()));
  if (item.keeps())
    for (const uint32_t i : indices) work[i] -= mean;
  return mean;
}

// The indices in section `index` of a payload, in the memory where the call works. Throws
// INVALID_PAYLOAD unless they ascend and are below n.
inline std::span<const uint32_t> checked_indices(const Call& call, const PayloadReader& payload,
                                                 uint64_t index, uint64_t n) {
  const std::span<const uint32_t> indices = payload.on_host<uint32_t>(call, index);
  for (uint64_t j = 0; j < indices.size(); ++j)
    if (indices[j] >= n || (j > 0 && indices[j] <= indices[j - 1]))
      throw payload.error("has index ", indices[j], " at entry ", j,
                          ", expected ascending ones below ", n);
  return payload.section<uint32_t>(index);
}

// The `expected` means in section `index` of a coded payload, in the memory where the call works.
// Throws INVALID_PAYLOAD for another kind and for a mean that is not finite.
inline std::span<const float> checked_means(const Call& call, const PayloadReader& payload,
                                            uint64_t index, uint64_t expected) {
  if (payload.kind() != PENSTOCK_PAYLOAD_CODED)
    throw payload.error("is of kind ", payload.kind(), ", expected coded");
  for (const float mean : payload.on_host<float>(call, index, expected))
    if (!std::isfinite(mean)) throw payload.error("has the mean ", mean, ", expected a finite one");
  return payload.section<float>(index);
}

// out[i] += mean for every index.
inline void add_mean(std::span<const uint32_t> indices, float mean, std::span<float> out) {
  for (const uint32_t i : indices) out[i] += mean;
}

}  // namespace penstock::sdk
