// The owner of each element, for routes that distribute elements over several owners. Ownership is
// a pure function of a set's gradients and the number of owners, never of a plan, so an owner keeps
// its state under every new plan.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock {

struct OwnableGradient {
  uint64_t numel = 0;
  uint64_t alignment = 0;  // may be cut at multiples of this; 0: indivisible
  uint64_t cols = 1;       // of a matrix: rows stay whole if the matrix has enough rows
};

// Elements [first, first + numel) of a gradient belong to `owner`.
struct OwnedRange {
  uint64_t first = 0;
  uint64_t numel = 0;
  uint32_t owner = 0;
  bool operator==(const OwnedRange&) const = default;
};

// For each gradient its ranges, ascending and without gaps; at least one. A large gradient is cut
// evenly among all owners. A small or indivisible gradient goes whole to one owner: the largest
// gradient first, each to the owner with the fewest elements so far.
using Ownership = std::vector<std::vector<OwnedRange>>;
Ownership share_out(const std::vector<OwnableGradient>& gradients, uint32_t n_owners);

}  // namespace penstock
