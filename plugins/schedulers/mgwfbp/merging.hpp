// The merging rule of MG-WFBP, whatever its times come from.
//
// Gradients are numbered in order of readiness. The open group holds those that were merged so far;
// its message may start once its last gradient is ready and the message before it is through:
//   start = max(end of the message before, ready of its last gradient).
// With `next` = when the following gradient is ready, the group is merged into it where waiting for
// it costs less than the start-up that merging saves,
//   next - start < startup,
// which holds in particular where the message could not even have started (start > next). The paper
// also asks that the message would still be running then (next < start + exchange): that follows,
// as no exchange is shorter than a start-up. Otherwise the group is closed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace mgwfbp {

// The groups. `ready` does not fall; all times are in one unit. `Message` is what travels together:
// add(gradient) puts one into it, exchange() says how long it takes, at least `startup`. Calls add
// once per gradient and exchange once per group. Always ends, whatever the numbers.
template <typename Message>
std::vector<std::vector<uint64_t>> merged(const std::vector<uint64_t>& gradients,
                                          const std::vector<double>& ready, double startup,
                                          const Message& empty) {
  std::vector<std::vector<uint64_t>> groups;
  double link_free = 0;  // when the messages of closed groups are through
  Message message = empty;
  std::vector<uint64_t> group;
  for (std::size_t i = 0; i < ready.size(); ++i) {
    message.add(gradients[i]);
    group.push_back(gradients[i]);
    const double start = std::max(link_free, ready[i]);
    if (i + 1 < ready.size() && ready[i + 1] - start < startup) continue;
    link_free = start + message.exchange();
    message = empty;
    groups.push_back(std::exchange(group, {}));
  }
  return groups;
}

}  // namespace mgwfbp
