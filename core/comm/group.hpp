// Ranks that exchange something with each other, as one of them sees it: who they are, on which
// hosts, and which of them are near.
//
// A run begins with the group of its world (joined); all others are cut out of one that is there:
// subset by numbers, local and cross by hosts. What a group promises (ascending, below the size of
// the world, holds this rank) is checked in subset and nowhere else.
#pragma once

#include "core/base/status.hpp"
#include "core/comm/volume.hpp"

#include <penstock/collective.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace penstock {

class Group {
 public:
  // A world of one; never by way of {}, which among ranks means all.
  explicit Group() : Group(PENSTOCK_LEVEL_WORLD, 0, {0}, {0}) {}
  // The world of a run; hosts[r] is the number of rank r's host, numbers from 0 in the order in
  // which ranks have them first. INTERNAL where a transport's join told something else.
  static Result<Group> joined(uint32_t rank, std::span<const uint32_t> hosts);
  static Result<Group> joined(const penstock_world& world);

  // Of the world: these ranks of it; none means all. INVALID_ARGUMENT when they are not ascending,
  // not below its size, or this rank is not among them.
  Result<Group> subset(std::span<const uint32_t> ranks) const;
  // Those on this rank's host.
  Group local() const;
  // On each host the one that has as many before it there as this rank has; hosts with fewer ranks
  // have none.
  Group cross() const;

  uint32_t size() const { return static_cast<uint32_t>(ranks_.size()); }
  uint32_t rank() const { return rank_; }  // this rank's position in it
  uint32_t world_rank() const { return ranks_[rank_]; }
  const std::vector<uint32_t>& ranks() const { return ranks_; }  // of the world, ascending
  const std::vector<uint32_t>& hosts() const { return hosts_; }  // of the members, as in the world
  uint32_t host() const { return hosts_[rank_]; }                // this rank's
  uint32_t n_hosts() const { return n_hosts_; }                  // on which members are
  uint32_t least_per_host() const;                               // members that every such host has
  uint32_t level() const { return level_; }                      // PENSTOCK_LEVEL_*
  const Spread& spread() const { return spread_; }
  // Where a rank of the world stands in it; nothing for one that is no member.
  std::optional<uint32_t> position_of(uint32_t world_rank) const;

  // For a transport; refers to this group. `id`: see group_id.
  penstock_group view(uint64_t id) const;

 private:
  Group(uint32_t level, uint32_t world_rank, std::vector<uint32_t> ranks,
        std::vector<uint32_t> hosts);
  template <typename Predicate>
  Group pick(uint32_t level, Predicate is_member) const;

  std::vector<uint32_t> ranks_, hosts_;  // one for each member
  uint32_t rank_ = 0;
  uint32_t n_hosts_ = 1;
  uint32_t level_ = PENSTOCK_LEVEL_WORLD;
  Spread spread_;
};

// Opened groups have numbers that are unique in a run and equal on all members. The first channel
// of a run opens before its ranks can agree on anything; each further one opens in an agreed
// operation of its own, whose serial number tells it from the others.
constexpr uint64_t kFirstGroupId = 0;
constexpr uint64_t group_id(uint64_t serial) {
  return serial + 1;
}

}  // namespace penstock
