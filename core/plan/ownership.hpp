// Who owns what of the gradients where a route gives each element to one of several owners: a pure
// function of the gradients of a set and the number of owners, never of a plan. So what an owner
// keeps stays with it whatever is planned anew.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock {

struct OwnableGradient {
  uint64_t numel = 0;
  uint64_t alignment = 0;  // may be cut at multiples of this; 0: indivisible
  uint64_t cols = 1;       // of a matrix: rows stay whole where there are enough of them
};

// Elements [first, first + numel) of a gradient belong to `owner`.
struct OwnedRange {
  uint64_t first = 0;
  uint64_t numel = 0;
  uint32_t owner = 0;
  bool operator==(const OwnedRange&) const = default;
};

// Per gradient its ranges, ascending, which cover it; at least one. Large gradients are cut evenly
// among all owners; those that are small or indivisible go whole to one, the largest first, each to
// who has least so far.
using Ownership = std::vector<std::vector<OwnedRange>>;
Ownership share_out(const std::vector<OwnableGradient>& gradients, uint32_t n_owners);

}  // namespace penstock
