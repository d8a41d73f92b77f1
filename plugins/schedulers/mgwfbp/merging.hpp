// The merging rule of MG-WFBP, whatever its times come from.
//
// Gradients are numbered in order of readiness. The open group holds those that were merged so far;
// its message may start once its last gradient is ready and the message before it is through:
//   start = max(end of the message before, ready of its last gradient).
// With `next` = when the following gradient is ready, the group is merged into it if its message
// would still be running then (next < start + exchange), and either it would not even have started
// (start > next: merging is free) or waiting for it costs less than the start-up that merging saves
// (next - start < startup). Otherwise the group is closed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace mgwfbp {

// How many gradients each group holds. `ready` does not fall; all times are in one unit. `Message`
// is what travels together: add(i) puts gradient i into it, time() says how long it takes. Calls
// add and time once per gradient. Always ends, whatever the numbers.
template <typename Message>
std::vector<uint64_t> merged_counts(const std::vector<double>& ready, double startup,
                                    const Message& empty) {
  std::vector<uint64_t> counts;
  double link_free = 0;  // when the messages of closed groups are through
  Message message = empty;
  uint64_t count = 0;
  for (std::size_t i = 0; i < ready.size(); ++i) {
    message.add(i);
    ++count;
    const double start = std::max(link_free, ready[i]);
    const double end = start + message.time();
    if (i + 1 < ready.size()) {
      const double next = ready[i + 1];
      const bool still_running = next < end;
      if (still_running && (start > next || next - start < startup)) continue;
    }
    counts.push_back(count);
    link_free = end;
    message = empty;
    count = 0;
  }
  return counts;
}

}  // namespace mgwfbp
