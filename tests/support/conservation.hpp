// No mass is lost: over steps of every kind, the inputs of a rank equal the sum of its applied and
// its kept values.
#pragma once

#include <testing/data.hpp>
#include <testing/gtest.hpp>
#include <testing/rig.hpp>

namespace penstock::test {

// Runs `steps` steps. In each ten steps, one is void, one is forgotten, and in one the collective
// refuses every third entry. With several ranks, in another step one rank has just joined. Then two
// sums are checked. For every rank, item and element, the gradients equal the applied payloads plus
// the drained values. For every item and element, the gradients of all ranks equal the decoded sums
// plus the drained values of all ranks. The memory must keep a plain sum of gradients, so factors
// and momentum are excluded.
//
// kByElement: the method sends each element uncompressed, so rounding depends on the magnitudes of
// the element alone. kByLargest: elements share a scale or a range, so rounding depends on the
// largest of these elements.
enum class KeptSize { kByElement, kByLargest };
void expect_conservation(CompressorRig& rig, const Distribution& distribution, uint64_t steps = 100,
                         KeptSize kept_size = KeptSize::kByElement);

}  // namespace penstock::test
