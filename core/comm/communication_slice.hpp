// What the communication thread asks of the kernel's scheduler.
#pragma once

namespace penstock {

// [comm] Asks for the shortest time slice. The thread runs a few microseconds at a time, and should
// run as soon as it wakes: with a slice like its neighbours' it would wait until the compute thread
// on its core has used up its own. It gets no larger share of the core by this. Needs no
// privileges; kernels that know nothing of it go on as before.
void ask_for_short_slice();

}  // namespace penstock
