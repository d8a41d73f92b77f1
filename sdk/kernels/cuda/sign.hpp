// One-bit signs on a device: pack, vote, unpack with values. Results, planes and lists are equal to
// the results of ../sign.hpp. Planes are aligned to 8 bytes. Contract: workspace.hpp.
//
// Senders are host memory that points to device memory. They travel with the launch, so one call
// takes only a few; for more senders, make one call after the other.
#pragma once

#include <kernels/cuda/senders.hpp>
#include <kernels/cuda/workspace.hpp>
#include <kernels/sign.hpp>

#include <cstdint>
#include <span>

namespace penstock::kernels::cuda {

// ---- Pack ----

// The memory for the signs of an array; all pointers are to device memory.
struct SignRoom {
  uint64_t* negative; /* [sign_words] */
  uint32_t* zeros;    /* [capacity] */
  uint64_t capacity;
  uint64_t* nonzero; /* [sign_words] */
  uint64_t* n_zeros;
  uint64_t* n_nonzero;
};

uint64_t pack_signs_workspace_bytes(uint64_t numel) noexcept;

// Writes the plane of negative elements, and the zeros (of either sign) in one of two forms. Up to
// `capacity` zeros are written as their positions, ascending; *n_zeros is their number and
// *n_nonzero is 0. Otherwise the plane of elements that are not zero is written; *n_zeros is 0 and
// *n_nonzero the number of its words. The memory of the other form does not change. `numel` must be
// at most 2^32 if capacity is not 0. If there is a `fold`, its work must be `values`; this sweep
// then compensates the values first.
[[nodiscard]] int32_t pack_signs(const float* values, uint64_t numel, const SignRoom& room,
                                 Workspace workspace, void* stream,
                                 const Fold* fold = nullptr) noexcept;

// ---- The numbers for which signs stand ----

// The layout of the numbers, which are in device memory. Each run of `run` elements, a multiple of
// 64, has two numbers: one for positive and one for negative elements. If `mirrored`, a run has one
// number, and negative elements stand for its opposite. The last run may be shorter.
struct SignRuns {
  uint64_t run;
  bool mirrored;
};

// *number = *sum / numel, where *sum is the sum of the magnitudes of `numel` elements; 0 if numel
// is 0.
[[nodiscard]] int32_t mean_magnitude(const double* sum, uint64_t numel, float* number,
                                     void* stream) noexcept;

// numbers[2 r] and numbers[2 r + 1] = the mean of the positive and of the negative elements of run
// r, whose sums are sums[r]; 0 if there are none.
[[nodiscard]] int32_t means_by_sign(const SumsBySign* sums, uint64_t n_runs, float* numbers,
                                    void* stream) noexcept;

// Subtracts from each element above or below zero the number of its run and sign; zeros stay.
[[nodiscard]] int32_t take_out_by_sign(float* values, uint64_t numel, SignRuns runs,
                                       const float* numbers, void* stream) noexcept;

// values[i] -= one if values[i] > 0, += one if values[i] < 0; zeros stay.
[[nodiscard]] int32_t take_out_signs(float* values, uint64_t numel, float one,
                                     void* stream) noexcept;

// ---- Vote ----

// The place of a call in a vote that takes several calls, one after the other over one `out`.
// Between the calls out[i] is a whole number: the voters above zero minus the voters below zero.
struct VotePart {
  bool first = true;
  bool last = true;
};

// out[i] = one * sign(sum over voters of sign_i); zeros if there are no voters. Lists of zeros must
// be ascending and below numel; together the calls of a vote have at most kMaxVoters.
[[nodiscard]] int32_t majority_vote(std::span<const Signs> voters, VotePart part, uint64_t numel,
                                    float one, float* out, void* stream) noexcept;

// ---- Unpack ----

// out[i] = (clear ? 0 : out[i]) + the numbers of the senders for i, added in the order of senders;
// a zero adds nothing. In the end each out[i] is multiplied by `scale`, with its own rounding.
[[nodiscard]] int32_t sum_valued_signs(std::span<const ValuedSigns> senders, uint64_t numel,
                                       SignRuns runs, bool clear, float scale, float* out,
                                       void* stream) noexcept;

}  // namespace penstock::kernels::cuda
