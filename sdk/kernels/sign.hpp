// One-bit signs: pack, vote, unpack with values. sign(0) is 0, and a tie of the vote is 0.
//
// Signs travel as a plane of one bit per element, set where the element is negative. Exact zeros
// are given separately: as an ascending list while they are few, otherwise as a second plane. Bit i
// of a plane is bit i mod 64 of word i / 64; bits behind the last element are ignored. Every code
// path gives equal bits. All functions are [any].
#pragma once

#include <kernels/code_path.hpp>
#include <kernels/fold.hpp>

#include <cstdint>

namespace penstock::kernels {

// 64-bit words of a plane.
constexpr uint64_t sign_words(uint64_t numel) noexcept {
  return (numel + 63) / 64;
}

// The length of the longest list of zeros; a longer list would take more bytes than a second plane.
// 0 if a position may not fit 32 bits.
constexpr uint64_t sign_zero_capacity(uint64_t numel) noexcept {
  return numel <= uint64_t{1} << 32 ? numel / 32 : 0;
}

// The signs of one rank. `nonzero` is null unless a plane gives the zeros.
struct Signs {
  const uint64_t* negative; /* [sign_words] */
  const uint32_t* zeros;    /* [n_zeros] ascending positions below numel */
  uint64_t n_zeros;
  const uint64_t* nonzero; /* [sign_words] or null */
};

// ---- Pack ----

// Writes the plane of negative elements and the positions of the first `capacity` zeros (of either
// sign). Returns the number of zeros: if it exceeds `capacity`, the list is useless and the caller
// must use pack_nonzero. If there is a `fold`, its work must be `values`; this sweep then
// compensates the values first.
uint64_t pack_signs(const float* values, uint64_t numel, uint64_t* negative, uint32_t* zeros,
                    uint64_t capacity, CodePath path, const Fold* fold = nullptr) noexcept;

// Writes the plane of elements that are not zero.
void pack_nonzero(const float* values, uint64_t numel, uint64_t* nonzero, CodePath path) noexcept;

// The counts, and the sums in double, of the elements above and below zero. Element i is added in
// lane i mod 16, and lanes are joined by halving.
struct SumsBySign {
  double positive;
  double negative;
  uint64_t n_positive;
  uint64_t n_negative;
};
SumsBySign sums_by_sign(const float* values, uint64_t numel, CodePath path) noexcept;

// values[i] -= plus if values[i] > 0, minus if values[i] < 0; zeros stay.
void take_out_by_sign(float* values, uint64_t numel, float plus, float minus,
                      CodePath path) noexcept;

// ---- Vote ----

// The largest number of voters in one vote.
inline constexpr uint64_t kMaxVoters = 65535;

// Sets bit i of `positive` if more voters are above zero than below, and of `negative` if fewer
// are. Bits behind the last element are undefined. `n_voters` is at most kMaxVoters; lists of zeros
// are ascending and below numel.
void majority_planes(const Signs* voters, uint64_t n_voters, uint64_t numel, uint64_t* positive,
                     uint64_t* negative, CodePath path) noexcept;

// out[i] = sign(sum over voters of sign_i) in {-1, 0, 1}; zeros if there are no voters. With one
// voter, out holds its signs.
void majority_vote(const Signs* voters, uint64_t n_voters, uint64_t numel, float* out,
                   CodePath path) noexcept;

// ---- Unpack ----

// Signs that stand for numbers: each run of `run` elements (a multiple of 64) has one number for
// its positive elements and one number for its negative elements.
struct ValuedSigns {
  Signs signs;
  const float* values; /* [2 * runs]: positive, negative, positive, ... */
};

// out[i] = (clear ? 0 : out[i]) + the numbers of the senders for i, added in the order of senders;
// a zero adds nothing. In the end each out[i] is multiplied by `scale`. The last run may be
// shorter.
void sum_valued_signs(const ValuedSigns* senders, uint64_t n_senders, uint64_t numel, uint64_t run,
                      bool clear, float* out, CodePath path, float scale = 1) noexcept;

}  // namespace penstock::kernels
