// The merging rule of OMGS-SGD, for measured or published times.
//
// Gradients are numbered in order of readiness. Sparsification runs on the device that runs
// backward, and delays backward: the open group is sparsified at
//   sparse = sparse of the group before + backward time of the group + selection of the group,
// and its message starts at start = max(end of the message before, sparse). If the next gradient is
// merged into the group, the message waits for
//   wait = backward(next) + selection(both) - selection(group) - selection(next) - (start - sparse)
// and merging saves
//   saved = exchange(group) + exchange(next) - exchange(both).
// The group is merged with the next gradient if wait < saved; otherwise it is closed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace omgs {

// Returns the groups. ready[i] is when backward reaches gradients[i]; all times must be in one
// unit. `Group` is the data that is sparsified and travels together: add(gradient) adds a gradient,
// encode() and exchange() return how long selection and message take. With `first_apart` the rule
// begins at the second gradient, and the first gradient is a group of its own. Copies and calls are
// O(1) per gradient. Always ends, for any numbers.
template <typename Group>
std::vector<std::vector<uint64_t>> merged(const std::vector<uint64_t>& gradients,
                                          const std::vector<double>& ready, const Group& empty,
                                          bool first_apart = false) {
  std::vector<std::vector<uint64_t>> groups;
  if (gradients.empty()) return groups;
  const auto alone = [&](std::size_t i) {
    Group group = empty;
    group.add(gradients[i]);
    return group;
  };
  double begin = 0;      // when backward of the open group began
  double link_free = 0;  // when the messages of closed groups have ended
  Group group = alone(0);
  double group_backward = ready[0];
  groups.push_back({gradients[0]});
  for (std::size_t next = 1; next < gradients.size(); ++next) {
    const double backward = ready[next] - ready[next - 1];
    const double sparse = begin + group_backward + group.encode();
    const double start = std::max(link_free, sparse);
    const Group single = alone(next);
    Group both = group;
    both.add(gradients[next]);
    const double wait =
        backward + both.encode() - group.encode() - single.encode() - (start - sparse);
    const double saved = group.exchange() + single.exchange() - both.exchange();
    if (wait < saved && !(first_apart && next == 1)) {
      group = both;
      group_backward += backward;
    } else {
      link_free = start + group.exchange();
      begin = sparse;
      group = single;
      group_backward = backward;
      groups.emplace_back();
    }
    groups.back().push_back(gradients[next]);
  }
  return groups;
}

}  // namespace omgs
