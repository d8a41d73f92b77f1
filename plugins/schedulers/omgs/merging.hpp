// The merging rule of OMGS-SGD, whatever its times come from.
//
// Gradients are numbered in order of readiness. Sparsification runs where backward runs, and delays
// it: the open group is sparsified at
//   sparse = sparse of the group before + backward time of the group + selection of the group,
// and its message starts at start = max(end of the message before, sparse). Merging the next
// gradient into it lets the message wait for
//   wait = backward(next) + selection(both) - selection(group) - selection(next) - (start - sparse)
// and saves
//   saved = exchange(group) + exchange(next) - exchange(both).
// The group is merged into the next gradient where wait < saved, otherwise it is closed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace omgs {

// How many gradients each group holds. backward[i] is the time that backward takes from gradient
// i - 1 to gradient i; all times are in one unit. `Group` is what is sparsified and travels
// together: add(i) puts gradient i into it, selection() and exchange() say how long these take.
// Copies and calls are O(1) per gradient. Always ends, whatever the numbers.
template <typename Group>
std::vector<uint64_t> merged_counts(const std::vector<double>& backward, const Group& empty) {
  std::vector<uint64_t> counts;
  if (backward.empty()) return counts;
  const auto alone = [&](std::size_t i) {
    Group group = empty;
    group.add(i);
    return group;
  };
  double begin = 0;      // when backward of the open group began
  double link_free = 0;  // when the messages of closed groups are through
  Group group = alone(0);
  double group_backward = backward[0];
  uint64_t count = 1;
  for (std::size_t next = 1; next < backward.size(); ++next) {
    const double sparse = begin + group_backward + group.selection();
    const double start = std::max(link_free, sparse);
    const Group single = alone(next);
    Group both = group;
    both.add(next);
    const double wait = backward[next] + both.selection() - group.selection() - single.selection() -
                        (start - sparse);
    const double saved = group.exchange() + single.exchange() - both.exchange();
    if (wait < saved) {
      group = both;
      group_backward += backward[next];
      ++count;
      continue;
    }
    counts.push_back(count);
    link_free = start + group.exchange();
    begin = sparse;
    group = single;
    group_backward = backward[next];
    count = 1;
  }
  counts.push_back(count);
  return counts;
}

// Differences of ready times, the first from zero.
inline std::vector<double> differences(const std::vector<double>& ready) {
  std::vector<double> result;
  for (std::size_t i = 0; i < ready.size(); ++i)
    result.push_back(i == 0 ? ready[0] : ready[i] - ready[i - 1]);
  return result;
}

}  // namespace omgs
