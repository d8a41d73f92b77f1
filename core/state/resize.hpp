// The share of saved state that a rank takes over when a different number of ranks saved the state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace penstock {

struct Resize {
  uint32_t rank = 0, world = 1;  // the ranks that load
  uint64_t saved = 1;            // number of ranks that saved
  bool averages = false;         // results are means over ranks, not sums

  // The factor for kept mass. A mean over n ranks applies 1 / n of each number that a rank keeps.
  // To preserve its effect on the parameters, kept mass is multiplied by world / saved. In a sum it
  // does not change.
  double worth() const { return averages ? double(world) / double(saved) : 1; }
};

// target[i] = worth * the sum over the old ranks whose number modulo the new world is `to.rank`, so
// the state of an old rank goes to exactly one new rank. Absent shards count as zeros. Float32 and
// float64 only.
void take_share(std::span<const std::optional<std::string_view>> saved, uint32_t dtype,
                const Resize& to, double worth, std::span<std::byte> target);

}  // namespace penstock
