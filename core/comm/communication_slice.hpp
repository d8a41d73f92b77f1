// Requests of the communication thread, and of other polling threads, to the kernel's scheduler.
#pragma once

namespace penstock {

// [comm] Asks for the shortest time slice. The thread runs for a few microseconds at a time and
// should run at once when it wakes. With an ordinary slice it would wait until the compute thread
// on its core has used up its own slice. The request does not give the thread a larger share of the
// core and needs no privileges. A kernel without this feature ignores it.
void ask_for_short_slice();

// Lets sleeps of the calling thread end within 1 us of their time instead of the usual 50 us. Part
// of ask_for_short_slice too.
void ask_for_punctual_sleeps();

}  // namespace penstock
