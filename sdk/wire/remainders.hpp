// Numbers of a fixed width of 1 to 31 bits, packed without gaps. A whole group of kSlice numbers
// lies across 16 lanes of 32 bits: number i is the (i / 16)th of lane i mod 16, and the lanes'
// first words come first, then their second words. Less than a group is one string of bits.
#pragma once

#include <kernels/code_path.hpp>
#include <wire/header.hpp>

namespace penstock::wire {

constexpr uint64_t packed_bytes(uint64_t count, unsigned width) noexcept {
  return count / 8 * width + (count % 8 * width + 7) / 8;
}

// Packs `count` <= kSlice numbers below 2^width. Writes packed_bytes(count, width) bytes. [any]
void pack_remainders(const uint32_t* numbers, uint64_t count, unsigned width, unsigned char* packed,
                     kernels::CodePath path) noexcept;

// Unpacks the numbers of pack_remainders. [any]
void unpack_remainders(const unsigned char* packed, uint64_t count, unsigned width,
                       uint32_t* numbers, kernels::CodePath path) noexcept;

}  // namespace penstock::wire
