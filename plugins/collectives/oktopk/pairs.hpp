// Ascending lists of (position, value) pairs, and the operations of Ok-Topk on them. Pure
// functions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace penstock::oktopk {

// One entry. Positions count the elements of all items of a message, one item after the other. A
// pair travels as one UINT64.
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

// |value| as bits, which have the order of the numbers; a NaN is larger than every number.
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

// The rule that decides which sums survive.
struct Survival {
  uint32_t least = 0;     // magnitudes above this are kept
  uint64_t ties = ~0ull;  // how many sums of exactly `least` are kept, at the lowest positions
  bool zeros = false;     // whether sums of zero are kept too
  float theta = 0;
};

// The exact rule: the k largest magnitudes of all regions survive; among equal magnitudes the lower
// position wins. `all` holds the non-zero magnitudes of every region in order of position; this
// region's magnitudes begin at `mine`. `ranked` is overwritten.
Survival exact_survival(std::span<const uint32_t> all, uint64_t mine, uint64_t k,
                        std::vector<uint32_t>& ranked);

// Removes the sums that do not survive; the order stays.
void keep_survivors(std::vector<Pair>& sums, Survival survival);

}  // namespace penstock::oktopk
