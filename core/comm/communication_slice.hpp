// What the communication thread, and others that look at something again and again, ask of the
// kernel's scheduler.
#pragma once

namespace penstock {

// [comm] Asks for the shortest time slice. The thread runs a few microseconds at a time, and should
// run as soon as it wakes: with a slice like its neighbours' it would wait until the compute thread
// on its core has used up its own. It gets no larger share of the core by this. Needs no
// privileges; kernels that know nothing of it go on as before.
void ask_for_short_slice();

// Of the calling thread, the short slice's among them: a sleep ends when it should, within 1 us in
// place of the usual 50.
void ask_for_punctual_sleeps();

}  // namespace penstock
