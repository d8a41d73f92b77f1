// Ascending lists of (position, value) pairs, and what Ok-Topk does with them. Pure functions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace penstock::oktopk {

// An entry; positions count the elements of all items of a message, one item after the other. Moved
// as one UINT64.
struct Pair {
  uint32_t position;
  float value;
};
static_assert(sizeof(Pair) == 8);

// Elements whose contents are undefined until written; grows but never shrinks.
template <typename T>
class Room {
 public:
  T* at_least(uint64_t n) {
    if (n > size_) {
      elements_ = std::make_unique_for_overwrite<T[]>(n);
      size_ = n;
    }
    return elements_.get();
  }
  T* data() { return elements_.get(); }

 private:
  std::unique_ptr<T[]> elements_;
  uint64_t size_ = 0;
};

// |value| as bits, which order like the numbers do; a NaN is larger than all.
inline uint32_t magnitude(float value) {
  return std::bit_cast<uint32_t>(value) & 0x7fffffffu;
}

// Whether positions ascend strictly within [first, end).
bool ascends(std::span<const Pair> pairs, uint64_t first, uint64_t end);

// The P - 1 positions that cut `pairs` into P parts of equal count: split j is at entry
// floor(count j / P). An empty list cuts [0, n_elements) evenly.
void equal_count_splits(std::span<const Pair> pairs, uint64_t n_elements, uint32_t parts,
                        uint64_t* splits);

// sum = sum + addend, position by position; both ascending. `spare` is overwritten.
void add_to(std::vector<Pair>& sum, std::span<const Pair> addend, std::vector<Pair>& spare);

// Which sums survive.
struct Survival {
  uint32_t least = 0;     // magnitudes from this on are kept
  uint64_t ties = ~0ull;  // how many of exactly `least`, at the lowest positions
  bool zeros = false;     // sums that are zero are kept as well
  float theta = 0;
};

// The exact rule: the k largest magnitudes of all regions, ties to the lower position. `all` holds
// the non-zero magnitudes of every region in order of position, this region's from `mine` on.
// `ranked` is overwritten.
Survival exact_survival(std::span<const uint32_t> all, uint64_t mine, uint64_t k,
                        std::vector<uint32_t>& ranked);

// Drops from `sums` what does not survive; the order stays.
void keep_survivors(std::vector<Pair>& sums, Survival survival);

}  // namespace penstock::oktopk
