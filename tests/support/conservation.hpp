// Nothing is lost: what a rank put in is what took effect plus what it still keeps, through steps
// of every kind.
#pragma once

#include <testing/data.hpp>
#include <testing/gtest.hpp>
#include <testing/rig.hpp>

namespace penstock::test {

// Runs `steps` steps, of each ten one void, one forgotten, one in which the collective refuses
// every third entry and, with several ranks, one in which a rank has joined. Then checks, for every
// rank, item and element, that the gradients that were added equal what was sent and took effect
// plus what is drained; and for every item and element, that the gradients of all ranks equal the
// decoded sums over ranks plus what all of them drain. For memories whose kept mass is the
// gradients' plain sum (no factors, no momentum).
//
// What is kept of an element is at most a sum of its own magnitudes where a method sends elements
// as they are, and rounds accordingly. Where a scale or a range is shared, what is sent and kept
// goes by the largest element that shares it.
enum class KeptSize { kByElement, kByLargest };
void expect_conservation(CompressorRig& rig, const Distribution& distribution, uint64_t steps = 100,
                         KeptSize kept_size = KeptSize::kByElement);

}  // namespace penstock::test
