// One-bit signs on a device: pack, vote, unpack with values, with the results of ../sign.hpp, whose
// planes and lists these are. Planes are aligned to 8 bytes. Contract: workspace.hpp.
//
// Senders are host memory that points to device memory: they travel with the launch. So a call
// takes only a few; where there are more, one call follows the other.
#pragma once

#include <kernels/cuda/senders.hpp>
#include <kernels/cuda/workspace.hpp>
#include <kernels/sign.hpp>

#include <cstdint>
#include <span>

namespace penstock::kernels::cuda {

// ---- Pack ----

// Where the signs of an array go, all of it device memory.
struct SignRoom {
  uint64_t* negative; /* [sign_words] */
  uint32_t* zeros;    /* [capacity] */
  uint64_t capacity;
  uint64_t* nonzero; /* [sign_words] */
  uint64_t* n_zeros;
  uint64_t* n_nonzero;
};

uint64_t pack_signs_workspace_bytes(uint64_t numel) noexcept;

// Writes the plane of negative elements, and names the zeros (of either sign). While they are at
// most `capacity`: by their positions, ascending; *n_zeros is how many there are and *n_nonzero is
// 0. Otherwise by the plane of elements that are not zero; *n_zeros is 0 and *n_nonzero its words.
// The other room stays as it was. `numel` is at most 2^32 where capacity is not 0. With `fold`,
// whose work is `values`, they are compensated first, in the same sweep.
[[nodiscard]] int32_t pack_signs(const float* values, uint64_t numel, const SignRoom& room,
                                 Workspace workspace, void* stream,
                                 const Fold* fold = nullptr) noexcept;

// ---- What signs stand for ----

// Which numbers they are, in device memory. Each run of `run` elements, a multiple of 64, has two:
// one for positive and one for negative elements. Mirrored it has one, and negative elements its
// opposite. The last run may be shorter.
struct SignRuns {
  uint64_t run;
  bool mirrored;
};

// *number = the sum of magnitudes of `numel` elements over their number, 0 for none.
[[nodiscard]] int32_t mean_magnitude(const double* sum, uint64_t numel, float* number,
                                     void* stream) noexcept;

// numbers[2 r] and numbers[2 r + 1] = the mean of the positive and of the negative elements of run
// r, whose sums are sums[r]; 0 where there are none.
[[nodiscard]] int32_t means_by_sign(const SumsBySign* sums, uint64_t n_runs, float* numbers,
                                    void* stream) noexcept;

// Takes its run's number out of each element above and below zero; zeros stay.
[[nodiscard]] int32_t take_out_by_sign(float* values, uint64_t numel, SignRuns runs,
                                       const float* numbers, void* stream) noexcept;

// values[i] -= one where it is above zero, += one where it is below; zeros stay.
[[nodiscard]] int32_t take_out_signs(float* values, uint64_t numel, float one,
                                     void* stream) noexcept;

// ---- Vote ----

// What a call is of a vote that takes several, one after the other over the same `out`. Between
// them out[i] is by how many more voters were above zero than below: a whole number.
struct VotePart {
  bool first = true;
  bool last = true;
};

// out[i] = one * sign(sum over voters of sign_i); zeros without voters. Lists of zeros are
// ascending and below numel; together the calls have at most kMaxVoters.
[[nodiscard]] int32_t majority_vote(std::span<const Signs> voters, VotePart part, uint64_t numel,
                                    float one, float* out, void* stream) noexcept;

// ---- Unpack ----

// out[i] = (clear ? 0 : out[i]) + the number of sender 0 + that of sender 1 + ..., in this order;
// a zero adds nothing. In the end each is multiplied by `scale`, as a rounding of its own.
[[nodiscard]] int32_t sum_valued_signs(std::span<const ValuedSigns> senders, uint64_t numel,
                                       SignRuns runs, bool clear, float scale, float* out,
                                       void* stream) noexcept;

}  // namespace penstock::kernels::cuda
