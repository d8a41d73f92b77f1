// The linear costs of a link that a plan uses: the time that one more message adds while other
// messages are under way.
#pragma once

#include "core/plan/planner.hpp"
#include "core/tuning/link_trial.hpp"

namespace penstock {

// Measurements of one level of the network: time of a message = alpha + beta * bytes, in which
// bytes are the bytes that a rank hands over.
struct LinkLines {
  planning::LinkEntry whole;                 // all-reduces of every size
  std::vector<planning::LinkEntry> by_size;  // per pattern, in two classes of size each
};

// Collective over the channel's group, between two steps. A transport carries messages
// concurrently. Therefore it measures the time per message of several small messages, not the
// latency of a single message, and the time that a second large message takes behind a first. Each
// value is the minimum of a few tries, because other load on the machine only adds time. The time
// of a device-to-device message includes its header and ticket. Errors: errors of the transport,
// and `limit_us` per message.
Result<LinkLines> measure_lines(const HostPath& path);
Result<LinkLines> measure_lines(const DirectPath& path);

}  // namespace penstock
