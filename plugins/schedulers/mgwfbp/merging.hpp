// The merging rule of MG-WFBP, for measured or published times.
//
// Gradients are numbered in order of readiness. The open group holds the gradients that were merged
// so far. Its message may start once its last gradient is ready and the message before it has
// ended:
//   start = max(end of the message before, ready of its last gradient).
// With `next` = the time at which the following gradient is ready, the group is merged with this
// gradient if waiting for it costs less than the start-up that merging saves,
//   next - start < startup,
// which holds in particular if the message could not even have started (start > next). The paper
// also requires that the message would still be running then (next < start + exchange). This
// follows, because no exchange is shorter than a start-up. Otherwise the group is closed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace mgwfbp {

// Returns the groups. `ready` must not fall; all times must be in one unit. `Message` is the data
// that travels together: add(gradient) adds a gradient, exchange() returns how long the message
// takes, at least `startup`. Calls add once per gradient and exchange once per group. Always ends,
// for any numbers.
template <typename Message>
std::vector<std::vector<uint64_t>> merged(const std::vector<uint64_t>& gradients,
                                          const std::vector<double>& ready, double startup,
                                          const Message& empty) {
  std::vector<std::vector<uint64_t>> groups;
  double link_free = 0;  // when the messages of closed groups have ended
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
