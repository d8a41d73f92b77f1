// The lines of a link, as a plan needs them: what a further message adds while others are under
// way.
#pragma once

#include "core/plan/planner.hpp"
#include "core/tuning/link_trial.hpp"

namespace penstock {

// What was measured of one level of the network: time of a message = alpha + beta * bytes, with the
// bytes that a rank hands over.
struct LinkLines {
  planning::LinkEntry whole;                 // all-reduces of any size
  std::vector<planning::LinkEntry> by_size;  // per pattern, each in two classes of size
};

// Collective over the channel's group, between two steps. The transport carries messages side by
// side, so what counts is what each of several small ones takes and not the time that a lone one is
// on its way, and what a second large one takes behind the first. Each is the least of a few:
// whatever else the machine does only adds to it. From device to device a message counts with its
// header and turn. Errors: the transport's, and `limit_us` per message.
Result<LinkLines> measure_lines(const HostWay& way);
Result<LinkLines> measure_lines(const DirectWay& way);

}  // namespace penstock
