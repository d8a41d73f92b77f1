// One-bit signs on a device: pack, vote, unpack with values, with the results of ../sign.hpp, whose
// planes and lists these are. Planes are aligned to 8 bytes. Contract: workspace.hpp.
#pragma once

#include <kernels/cuda/workspace.hpp>
#include <kernels/sign.hpp>

#include <cstdint>

namespace penstock::kernels::cuda {

// ---- Pack ----

uint64_t pack_signs_workspace_bytes(uint64_t numel) noexcept;

// Writes the plane of negative elements, the positions of the first `capacity` zeros (of either
// sign), ascending, and *n_zeros, how many zeros there are: if more than `capacity`, the list is
// useless and pack_nonzero has to name them. `numel` is at most 2^32 where capacity is not 0.
[[nodiscard]] int32_t pack_signs(const float* values, uint64_t numel, uint64_t* negative,
                                 uint32_t* zeros, uint64_t capacity, uint64_t* n_zeros,
                                 Workspace workspace, void* stream) noexcept;

// Writes the plane of elements that are not zero.
[[nodiscard]] int32_t pack_nonzero(const float* values, uint64_t numel, uint64_t* nonzero,
                                   void* stream) noexcept;

// values[i] -= steps[0] where it is above zero, steps[1] where it is below; zeros stay. `steps` is
// device memory.
[[nodiscard]] int32_t take_out_by_sign(float* values, uint64_t numel, const float* steps,
                                       void* stream) noexcept;

// ---- Vote ----

// Sets bit i of `positive` where more voters are above zero than below, of `negative` where fewer.
// Bits behind the last element are undefined. voters[n_voters] is itself device memory, and points
// to device memory; there are at most kMaxVoters; lists of zeros are ascending and below numel.
[[nodiscard]] int32_t majority_planes(const Signs* voters, uint64_t n_voters, uint64_t numel,
                                      uint64_t* positive, uint64_t* negative,
                                      void* stream) noexcept;

// out[i] = sign(sum over voters of sign_i) in {-1, 0, 1}; zeros without voters.
[[nodiscard]] int32_t majority_vote(const Signs* voters, uint64_t n_voters, uint64_t numel,
                                    float* out, void* stream) noexcept;

// ---- Unpack ----

// out[i] = (clear ? 0 : out[i]) + the number of sender 0 + that of sender 1 + ..., in this order; a
// zero adds nothing. In each run of `run` elements, a multiple of 64, a sender has one number for
// positive and one for negative elements; the last run may be shorter. senders[n_senders] is itself
// device memory, and points to device memory.
[[nodiscard]] int32_t sum_valued_signs(const ValuedSigns* senders, uint64_t n_senders,
                                       uint64_t numel, uint64_t run, bool clear, float* out,
                                       void* stream) noexcept;

}  // namespace penstock::kernels::cuda
