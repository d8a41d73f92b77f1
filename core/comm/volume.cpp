#include "core/comm/volume.hpp"

#include "core/plugin/instances.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace penstock {
namespace {

double moved_by_formula(double size, uint32_t pattern, double bytes) {
  switch (pattern) {
    case PENSTOCK_ALL_REDUCE:
      return 2 * (size - 1) / size * bytes;
    case PENSTOCK_REDUCE_SCATTER:
    case PENSTOCK_ALL_TO_ALL:
      return (size - 1) / size * bytes;
    case PENSTOCK_ALL_GATHER:
    case PENSTOCK_BROADCAST:
    case PENSTOCK_SPARSE_ALL_REDUCE:
      return (size - 1) * bytes;
    case PENSTOCK_SEND:
      return bytes;
    default:
      return 0;
  }
}

}  // namespace

Spread spread_of(const std::vector<uint32_t>& hosts) {
  std::map<uint32_t, uint32_t> ranks;  // per host
  for (const uint32_t host : hosts) ++ranks[host];
  const auto size = static_cast<uint32_t>(hosts.size());
  if (ranks.empty()) return {};
  const bool even = std::all_of(ranks.begin(), ranks.end(), [&](const auto& host) {
    return host.second == ranks.begin()->second;
  });
  if (!even) return {size, 1};
  return {static_cast<uint32_t>(ranks.size()), ranks.begin()->second};
}

double moved_bytes(const penstock_collective* table, void* instance, const Spread& spread,
                   uint32_t pattern, uint64_t bytes) {
  if (spread.size() < 2 || bytes == 0) return 0;
  if (table != nullptr && PENSTOCK_HAS_MEMBER(table, penstock_collective, volume)) {
    penstock_volume within{sizeof within, 0, 0, 0}, between{sizeof between, 0, 0, 0};
    penstock_volume* const volumes[] = {&within, &between};
    const Status status = from_c(
        table->volume(instance, pattern, spread.hosts, spread.ranks_per_host, bytes, volumes));
    const double reported = within.bytes + between.bytes;
    if (status.ok() && std::isfinite(reported) && reported >= 0) return reported;
  }
  return moved_by_formula(spread.size(), pattern, static_cast<double>(bytes));
}

}  // namespace penstock
