// Sums of coded payloads on a device. The kernels read the codes in their sent form and give the
// bits of a plain loop over senders: out[i] = (0 or out[i]) + the number of each sender, in the
// order of senders; the sum is then multiplied by a scale, with its own rounding. One kernel, and
// one pass over out. Contract: workspace.hpp.
#pragma once

#include <kernels/cuda/sparse_sum.hpp>

#include <cstdint>
#include <span>

namespace penstock::kernels::cuda {

// The payload of one rank: codes, and the numbers of each run of elements, whose type depends on
// the function. The device does not check them; the caller must have checked them when they came
// from a peer.
struct CodeSender {
  const void* codes;
  const void* numbers;
};
// The payload of one rank in the form of two planes of bits, aligned to 8 bytes, and one scale.
struct ChosenSigns {
  const uint64_t* negative;
  const uint64_t* nonzero;
  const float* scale;
};

// The target of a sum, in runs of `run` elements; a run of 0 means one run of all elements.
struct CodedSum {
  SumOver over;
  float scale;
  float* out;
  uint64_t numel;
  uint64_t run;
};

// Codes of `bits` bits, packed as in ../pack_bits.hpp; the numbers are steps (float). The codes are
// the codes of round_to_levels (stochastic.hpp), cut to two's complement of `bits` bits.
[[nodiscard]] int32_t sum_levels(std::span<const CodeSender> senders, unsigned bits,
                                 const CodedSum& sum, void* stream) noexcept;

// Codes of round_to_range (codes.hpp), packed to `bits` bits; the numbers are RangeLevels.
[[nodiscard]] int32_t sum_range_levels(std::span<const CodeSender> senders, unsigned bits,
                                       const CodedSum& sum, void* stream) noexcept;

// Codes of reach_threshold (codes.hpp), packed to two bits; the numbers are thresholds (float).
[[nodiscard]] int32_t sum_thresholds(std::span<const CodeSender> senders, const CodedSum& sum,
                                     void* stream) noexcept;

// Codes of round_to_powers (stochastic.hpp), one byte each; the numbers are bases (uint8_t).
[[nodiscard]] int32_t sum_powers(std::span<const CodeSender> senders, const CodedSum& sum,
                                 void* stream) noexcept;

// Codes of nearest_in_tree (codes.hpp), one byte each; the numbers are scales (float).
[[nodiscard]] int32_t sum_tree(std::span<const CodeSender> senders, const CodedSum& sum,
                               void* stream) noexcept;

// Planes of round_to_signs (stochastic.hpp); sum.run is ignored.
[[nodiscard]] int32_t sum_chosen_signs(std::span<const ChosenSigns> senders, const CodedSum& sum,
                                       void* stream) noexcept;

}  // namespace penstock::kernels::cuda
