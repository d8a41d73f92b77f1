// One-bit signs: pack, vote, unpack. sign(0) is 0, and a tie of the vote is 0.
//
// Signs travel as a plane of one bit per element, set where the element is negative. Exact zeros
// are named beside it: by an ascending list while they are few, by a second plane otherwise. Bit i
// of a plane is bit i mod 64 of word i / 64; bits behind the last element are ignored.
#pragma once

#include <kernels/code_path.hpp>

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

// Writes the plane of negative elements and the positions of the first `capacity` zeros (of either
// sign). Returns how many zeros there are: if more than `capacity`, the list is useless and
// pack_nonzero has to name them. Same result on every code path. [any]
uint64_t pack_signs(const float* values, uint64_t numel, uint64_t* negative, uint32_t* zeros,
                    uint64_t capacity, CodePath path = widest_code_path()) noexcept;

// Writes the plane of elements that are not zero. [any]
void pack_nonzero(const float* values, uint64_t numel, uint64_t* nonzero) noexcept;

// values[i] -= sign(values[i]). [any]
void take_out_signs(float* values, uint64_t numel) noexcept;

// Most voters that majority_vote counts.
inline constexpr uint64_t kMaxVoters = 65535;

// out[i] = sign(sum over voters of sign_i) in {-1, 0, 1}; zeros without voters. One voter: its
// signs. `n_voters` is at most kMaxVoters; lists of zeros are ascending and below numel. [any]
void majority_vote(const Signs* voters, uint64_t n_voters, uint64_t numel, float* out) noexcept;

}  // namespace penstock::kernels
