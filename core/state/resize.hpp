// What a rank takes over of state that another number of ranks has saved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace penstock {

struct Resize {
  uint32_t rank = 0, world = 1;  // that load
  uint64_t saved = 1;            // ranks that have saved
  bool averages = false;         // results are means over ranks, not sums

  // What a number that one rank keeps is owed to the parameters with follows from how many share
  // the result: of n ranks the mean takes 1 / n of it. So that the mean stays, what is kept grows
  // with the number of ranks; a sum stays as it is.
  double worth() const { return averages ? double(world) / double(saved) : 1; }
};

// target[i] = worth * the sum over those old ranks whose number modulo the new world is `to.rank`:
// what an old rank kept goes to one new rank, and to no other. Shards that are absent count as
// zeros. Float32 and float64 only.
void take_share(std::span<const std::optional<std::string_view>> saved, uint32_t dtype,
                const Resize& to, double worth, std::span<std::byte> target);

}  // namespace penstock
