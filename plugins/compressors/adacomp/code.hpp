// The words of AdaComp's wire format: one word for each entry that is sent, and one word for each
// bin that sends no entry. A word of W bits contains, from the low end, W - 2 bits of position in
// the bin, the sign, and a flag for the end of the bin.
#pragma once

#include <cstdint>
#include <span>

namespace adacomp {

template <typename Word>
struct Code {
  static constexpr uint32_t kPositionBits = 8 * sizeof(Word) - 2;
  static constexpr uint32_t kEmpty = (1u << kPositionBits) - 1;  // in the place of a position
  static constexpr uint32_t kMostBinLength = kEmpty;
  static constexpr uint32_t kNegative = 1u << kPositionBits;
  static constexpr uint32_t kLast = 2u << kPositionBits;

  // Walks through all words of an item with n entries; calls body(index, negative) for each entry.
  // Returns whether an encoder can have written these words: all bins in order, positions ascending
  // and inside the item.
  template <typename Body>
  static bool walk(std::span<const Word> words, uint64_t n, uint64_t bin_length, Body&& body) {
    uint64_t begin = 0;  // first entry of the current bin
    uint64_t least = 0;  // least position that may come next
    for (const Word word : words) {
      const uint64_t position = word & kEmpty;
      if (begin >= n) return false;
      if (position == kEmpty) {
        if (least != 0 || (word & ~kEmpty) != kLast) return false;
      } else {
        if (position < least || position >= bin_length || begin + position >= n) return false;
        body(begin + position, (word & kNegative) != 0);
        least = position + 1;
      }
      if ((word & kLast) == 0) continue;
      begin += bin_length;
      least = 0;
    }
    return begin >= n;
  }
};

}  // namespace adacomp
