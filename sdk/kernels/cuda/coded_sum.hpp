// Sums of coded payloads on a device, read as they were sent, with the bits of a plain loop over
// senders: out[i] = (0 or out[i]) + the number of each sender, in their order, and that times a
// scale as a rounding of its own. One kernel, and one pass over out. Contract: workspace.hpp.
#pragma once

#include <kernels/cuda/sparse_sum.hpp>

#include <cstdint>
#include <span>

namespace penstock::kernels::cuda {

// What one rank sent: codes, and the numbers of each run of elements, of the type that the sum
// names. The device does not look whether they are legal: whoever took them from a peer has.
struct CodeSender {
  const void* codes;
  const void* numbers;
};
// Two planes of bits, aligned to 8 bytes, and one scale.
struct ChosenSigns {
  const uint64_t* negative;
  const uint64_t* nonzero;
  const float* scale;
};

// What is summed over, in runs of `run` elements; a run of 0 is all of them.
struct CodedSum {
  SumOver over;
  float scale;
  float* out;
  uint64_t numel;
  uint64_t run;
};

// Codes of `bits` bits, packed as in ../pack_bits.hpp; numbers are steps, float: those of
// round_to_levels (stochastic.hpp), in two's complement of as many bits.
[[nodiscard]] int32_t sum_levels(std::span<const CodeSender> senders, unsigned bits,
                                 const CodedSum& sum, void* stream) noexcept;

// Codes of `bits` bits, packed; numbers are RangeLevels: those of round_to_range (codes.hpp).
[[nodiscard]] int32_t sum_range_levels(std::span<const CodeSender> senders, unsigned bits,
                                       const CodedSum& sum, void* stream) noexcept;

// Codes of two bits, packed; numbers are thresholds, float: those of reach_threshold (codes.hpp).
[[nodiscard]] int32_t sum_thresholds(std::span<const CodeSender> senders, const CodedSum& sum,
                                     void* stream) noexcept;

// Codes of a byte; numbers are bases, uint8_t: those of round_to_powers (stochastic.hpp).
[[nodiscard]] int32_t sum_powers(std::span<const CodeSender> senders, const CodedSum& sum,
                                 void* stream) noexcept;

// Codes of a byte; numbers are scales, float: those of nearest_in_tree (codes.hpp).
[[nodiscard]] int32_t sum_tree(std::span<const CodeSender> senders, const CodedSum& sum,
                               void* stream) noexcept;

// Planes of round_to_signs (stochastic.hpp); sum.run is not looked at.
[[nodiscard]] int32_t sum_chosen_signs(std::span<const ChosenSigns> senders, const CodedSum& sum,
                                       void* stream) noexcept;

}  // namespace penstock::kernels::cuda
