// Nothing is lost: what a rank put in is what took effect plus what it still keeps, through steps
// of every kind.
#pragma once

#include <support/data.hpp>
#include <support/rig.hpp>

namespace penstock::test {

// Runs `steps` steps, of each ten one void, one not applied, one in which the collective refuses
// every third entry and, with several ranks, one in which a rank has joined. Then checks, for every
// rank, item and element, that the gradients that were added equal what was sent and took effect
// plus what is drained. For memories whose kept mass is the gradients' plain sum (no factors, no
// momentum).
void expect_conservation(CompressorRig& rig, const Distribution& distribution,
                         uint64_t steps = 100);

}  // namespace penstock::test
