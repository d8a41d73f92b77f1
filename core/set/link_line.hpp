// The line of a link, as a plan needs it: what a further message adds while others are under way.
#pragma once

#include "core/comm/communication.hpp"
#include "core/plan/planner.hpp"

namespace penstock {

// Time of a message = alpha + beta * bytes, for all-reduces on `channel`. Collective over its
// group, between two steps; `tag` and the ones just below it must be free. The transport carries
// messages side by side, so alpha is what each of several small ones takes and not the time that a
// lone one is on its way, and beta that of a second large one behind the first. Each is the least
// of a few: whatever else the machine does only adds to it. Errors: the transport's, and `limit_us`
// per message.
Result<planning::LinkEntry> measure_link(Communication& communication, Channel& channel,
                                         uint64_t limit_us, uint64_t tag);

}  // namespace penstock
