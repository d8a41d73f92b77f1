// One-bit signs: pack, vote, unpack with values. sign(0) is 0, and a tie of the vote is 0.
//
// Signs travel as a plane of one bit per element, set where the element is negative. Exact zeros
// are named beside it: by an ascending list while they are few, by a second plane otherwise. Bit i
// of a plane is bit i mod 64 of word i / 64; bits behind the last element are ignored. Every code
// path gives the same bits. All functions are [any].
#pragma once

#include <kernels/code_path.hpp>
#include <kernels/fold.hpp>

#include <cstdint>

namespace penstock::kernels {

// 64-bit words of a plane.
constexpr uint64_t sign_words(uint64_t numel) noexcept {
  return (numel + 63) / 64;
}

// Longest list of zeros: where a longer one would take more bytes than a second plane. None where a
// position may not fit 32 bits.
constexpr uint64_t sign_zero_capacity(uint64_t numel) noexcept {
  return numel <= uint64_t{1} << 32 ? numel / 32 : 0;
}

// The signs of one rank. `nonzero` is null unless zeros are given by a plane.
struct Signs {
  const uint64_t* negative; /* [sign_words] */
  const uint32_t* zeros;    /* [n_zeros] ascending positions below numel */
  uint64_t n_zeros;
  const uint64_t* nonzero; /* [sign_words] or null */
};

// ---- Pack ----

// Writes the plane of negative elements and the positions of the first `capacity` zeros (of either
// sign). Returns how many zeros there are: if more than `capacity`, the list is useless and
// pack_nonzero has to name them. With `fold`, whose work is `values`, they are compensated first,
// in the same sweep.
uint64_t pack_signs(const float* values, uint64_t numel, uint64_t* negative, uint32_t* zeros,
                    uint64_t capacity, CodePath path, const Fold* fold = nullptr) noexcept;

// Writes the plane of elements that are not zero.
void pack_nonzero(const float* values, uint64_t numel, uint64_t* nonzero, CodePath path) noexcept;

// The elements above and below zero: how many, and their sums in double, for which element i is
// added in lane i mod 16 and lanes are joined by halving.
struct SumsBySign {
  double positive;
  double negative;
  uint64_t n_positive;
  uint64_t n_negative;
};
SumsBySign sums_by_sign(const float* values, uint64_t numel, CodePath path) noexcept;

// values[i] -= plus where it is above zero, minus where it is below; zeros stay.
void take_out_by_sign(float* values, uint64_t numel, float plus, float minus,
                      CodePath path) noexcept;

// ---- Vote ----

// Most voters that a vote counts.
inline constexpr uint64_t kMaxVoters = 65535;

// Sets bit i of `positive` where more voters are above zero than below, of `negative` where fewer.
// Bits behind the last element are undefined. `n_voters` is at most kMaxVoters; lists of zeros are
// ascending and below numel.
void majority_planes(const Signs* voters, uint64_t n_voters, uint64_t numel, uint64_t* positive,
                     uint64_t* negative, CodePath path) noexcept;

// out[i] = sign(sum over voters of sign_i) in {-1, 0, 1}; zeros without voters. One voter: its
// signs.
void majority_vote(const Signs* voters, uint64_t n_voters, uint64_t numel, float* out,
                   CodePath path) noexcept;

// ---- Unpack ----

// Signs that stand for numbers: in each run of `run` elements (a multiple of 64), one for positive
// elements and one for negative ones.
struct ValuedSigns {
  Signs signs;
  const float* values; /* [2 * runs]: positive, negative, positive, ... */
};

// out[i] = (clear ? 0 : out[i]) + the number of sender 0 + that of sender 1 + ..., in this order;
// a zero adds nothing. In the end each is multiplied by `scale`. The last run may be shorter.
void sum_valued_signs(const ValuedSigns* senders, uint64_t n_senders, uint64_t numel, uint64_t run,
                      bool clear, float* out, CodePath path, float scale = 1) noexcept;

}  // namespace penstock::kernels
