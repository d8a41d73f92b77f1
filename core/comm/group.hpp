// The ranks that exchange data with each other, as one rank sees them: their numbers, their hosts,
// and the ranks on its own host.
//
// A run begins with the group of its world (joined). All other groups are cut from an existing
// group: subset by rank numbers, local and cross by hosts. Only subset checks the properties of a
// group: ascending, below the world's size, contains this rank.
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
  // A world of one rank. Explicit, because {} as a list of ranks means all ranks.
  explicit Group() : Group(PENSTOCK_LEVEL_WORLD, 0, {0}, {0}) {}
  // The world of a run. hosts[r] is the number of rank r's host; hosts are numbered from 0 in the
  // order of their first ranks. INTERNAL if a transport's join reports other numbers.
  static Result<Group> joined(uint32_t rank, std::span<const uint32_t> hosts);
  static Result<Group> joined(const penstock_world& world);

  // Cuts the given ranks from the world; empty: all ranks. INVALID_ARGUMENT if they are not
  // ascending, not below the world's size, or do not contain this rank.
  Result<Group> subset(std::span<const uint32_t> ranks) const;
  // The ranks on this rank's host.
  Group local() const;
  // From each host, the rank whose position on its host is this rank's position on its own host. A
  // host with fewer ranks has no such rank.
  Group cross() const;

  uint32_t size() const { return static_cast<uint32_t>(ranks_.size()); }
  uint32_t rank() const { return rank_; }  // this rank's position in the group
  uint32_t world_rank() const { return ranks_[rank_]; }
  const std::vector<uint32_t>& ranks() const { return ranks_; }  // numbers in the world, ascending
  // Hosts of the members, numbered as in the world.
  const std::vector<uint32_t>& hosts() const { return hosts_; }
  uint32_t host() const { return hosts_[rank_]; }  // this rank's host
  uint32_t n_hosts() const { return n_hosts_; }    // hosts with members
  // The smallest number of members on such a host.
  uint32_t least_per_host() const;
  uint32_t level() const { return level_; }  // PENSTOCK_LEVEL_*
  const Spread& spread() const { return spread_; }
  // The position of a rank of the world in the group; empty if it is not a member.
  std::optional<uint32_t> position_of(uint32_t world_rank) const;

  // The view for a transport; refers to this group. `id`: see group_id.
  penstock_group view(uint64_t id) const;

 private:
  Group(uint32_t level, uint32_t world_rank, std::vector<uint32_t> ranks,
        std::vector<uint32_t> hosts);
  template <typename Predicate>
  Group pick(uint32_t level, Predicate is_member) const;

  std::vector<uint32_t> ranks_, hosts_;  // one entry per member
  uint32_t rank_ = 0;
  uint32_t n_hosts_ = 1;
  uint32_t level_ = PENSTOCK_LEVEL_WORLD;
  Spread spread_;
};

// Opened groups have numbers that are unique in a run and equal on all members. The first channel
// of a run opens before its ranks can agree on anything. Each further channel opens in its own
// agreed operation, and the serial number of that operation distinguishes it.
constexpr uint64_t kFirstGroupId = 0;
constexpr uint64_t group_id(uint64_t serial) {
  return serial + 1;
}

}  // namespace penstock
