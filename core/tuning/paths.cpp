#include "core/tuning/paths.hpp"

#include <algorithm>

namespace penstock {

DirectShare::DirectShare(const BytesByPath& bytes) {
  const auto& [direct, host] = bytes;
  most = direct.summed + direct.gathered > host.summed + host.gathered;
  const auto decide = [&](double directly, double by_host) {
    return directly + by_host > 0 ? directly > by_host : most;
  };
  sums = decide(direct.summed, host.summed);
  gathers = decide(direct.gathered, host.gathered);
}

void take_direct(const LinkLines& direct, uint32_t level, const DirectShare& share,
                 std::vector<planning::LinkEntry>& links, std::vector<planning::LinkEntry>& lines) {
  const auto is_measured = [&](uint32_t pattern) {
    return std::any_of(direct.by_size.begin(), direct.by_size.end(),
                       [&](const planning::LinkEntry& line) { return line.pattern == pattern; });
  };
  const auto goes_directly = [&](const planning::LinkEntry& line) {
    const bool is_gather = line.pattern == PENSTOCK_ALL_GATHER;
    return line.level == level && (is_gather ? share.gathers : share.sums) &&
           is_measured(line.pattern);
  };
  std::erase_if(lines, goes_directly);
  std::copy_if(direct.by_size.begin(), direct.by_size.end(), std::back_inserter(lines),
               goes_directly);
  if (!share.most || !is_measured(PENSTOCK_ALL_REDUCE)) return;
  for (planning::LinkEntry& link : links)
    if (link.level == level) link = direct.whole;
}

}  // namespace penstock
