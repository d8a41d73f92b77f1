#include "core/comm/group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace penstock {

Group::Group(uint32_t level, uint32_t world_rank, std::vector<uint32_t> ranks,
             std::vector<uint32_t> hosts)
    : ranks_(std::move(ranks)),
      hosts_(std::move(hosts)),
      n_hosts_(static_cast<uint32_t>(std::set(hosts_.begin(), hosts_.end()).size())),
      level_(level),
      spread_(spread_of(hosts_)) {
  rank_ = position_of(world_rank).value();
}

Result<Group> Group::joined(uint32_t rank, std::span<const uint32_t> hosts) {
  if (rank >= hosts.size())
    return internal("the transport says that this is rank {} of {}", rank, hosts.size());
  uint32_t n_hosts = 0;
  for (uint32_t other = 0; other < hosts.size(); ++other) {
    if (hosts[other] > n_hosts)
      return internal(
          "the transport says that rank {} is on host {}, expected at most {}: hosts are numbered "
          "in the order of their first ranks",
          other, hosts[other], n_hosts);
    n_hosts = std::max(n_hosts, hosts[other] + 1);
  }
  std::vector<uint32_t> ranks(hosts.size());
  std::iota(ranks.begin(), ranks.end(), 0u);
  return Group(PENSTOCK_LEVEL_WORLD, rank, std::move(ranks), {hosts.begin(), hosts.end()});
}

Result<Group> Group::joined(const penstock_world& world) {
  if (world.hosts == nullptr)
    return internal("the transport does not say on which hosts its {} ranks are", world.size);
  return joined(world.rank, {world.hosts, world.size});
}

Result<Group> Group::subset(std::span<const uint32_t> ranks) const {
  if (ranks.empty()) return *this;
  if (std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) != ranks.end() ||
      ranks.back() >= size())
    return invalid_argument("ranks are [{}], expected ascending ranks below {}",
                            fmt::join(ranks, ", "), size());
  if (!std::binary_search(ranks.begin(), ranks.end(), world_rank()))
    return invalid_argument("its ranks [{}] do not include this rank, {}", fmt::join(ranks, ", "),
                            world_rank());
  if (ranks.size() == size()) return *this;
  return pick(PENSTOCK_LEVEL_SUBSET, [&](uint32_t position) {
    return std::binary_search(ranks.begin(), ranks.end(), ranks_[position]);
  });
}

Group Group::local() const {
  return pick(PENSTOCK_LEVEL_LOCAL, [&](uint32_t position) { return hosts_[position] == host(); });
}

Group Group::cross() const {
  const auto before_it = [&](uint32_t position) {
    return std::count(hosts_.begin(), hosts_.begin() + position, hosts_[position]);
  };
  const auto mine = before_it(rank_);
  return pick(PENSTOCK_LEVEL_CROSS, [&](uint32_t position) { return before_it(position) == mine; });
}

uint32_t Group::least_per_host() const {
  std::map<uint32_t, uint32_t> members;
  for (const uint32_t host : hosts_) ++members[host];
  return std::min_element(members.begin(), members.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->second;
}

std::optional<uint32_t> Group::position_of(uint32_t world_rank) const {
  const auto found = std::lower_bound(ranks_.begin(), ranks_.end(), world_rank);
  if (found == ranks_.end() || *found != world_rank) return std::nullopt;
  return static_cast<uint32_t>(found - ranks_.begin());
}

penstock_group Group::view(uint64_t id) const {
  return {.struct_size = sizeof(penstock_group),
          .id = id,
          .world_ranks = ranks_.data(),
          .hosts = hosts_.data(),
          .rank = rank_,
          .size = size(),
          .level = level_,
          .flags = 0};
}

template <typename Predicate>
Group Group::pick(uint32_t level, Predicate is_member) const {
  std::vector<uint32_t> ranks, hosts;
  for (uint32_t position = 0; position < size(); ++position) {
    if (!is_member(position)) continue;
    ranks.push_back(ranks_[position]);
    hosts.push_back(hosts_[position]);
  }
  return Group(level, world_rank(), std::move(ranks), std::move(hosts));
}

}  // namespace penstock
