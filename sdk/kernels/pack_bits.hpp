// Codes of 1 to 8 bits packed without gaps into 64-bit words.
//
// Code i of width b is bits i*b to i*b + b - 1 of the sequence of words, counted from the lowest
// bit of word 0: 64 codes fill exactly b words, so ranges that start at a multiple of 64 codes can
// be packed separately. Bits behind the last code are zero when packed and ignored when unpacked.
#pragma once

#include <cstdint>

namespace penstock::kernels {

inline constexpr unsigned kMaxPackedBits = 8;

// 64-bit words of `count` codes of `bits` bits each.
constexpr uint64_t packed_words(uint64_t count, unsigned bits) noexcept {
  return count / 64 * bits + (count % 64 * bits + 63) / 64;
}

// codes[count] -> words[packed_words(count, bits)]; only the lower `bits` bits of a code count.
// The ranges must not overlap; 1 <= bits <= 8. [any]
void pack_bits(const uint8_t* codes, uint64_t count, unsigned bits, uint64_t* words) noexcept;

// words[packed_words(count, bits)] -> codes[count]. [any]
void unpack_bits(const uint64_t* words, uint64_t count, unsigned bits, uint8_t* codes) noexcept;

}  // namespace penstock::kernels
