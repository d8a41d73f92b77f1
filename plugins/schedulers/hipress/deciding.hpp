// HiPress's decision for one gradient: to compress it or not, and into how many parts to cut it.
#pragma once

#include <penstock/scheduler.h>

#include <cstdint>
#include <vector>

namespace hipress {

struct Decision {
  uint32_t choice = 0;  // index into the gradient's candidates
  uint64_t parts = 1;
  double time_us = 0;  // of the parts in a pipeline, summed over phases
};

// Into how many parts a gradient may be cut with this candidate, at most `most`: cuts lie at
// multiples of its alignment.
uint64_t most_parts(const penstock_gradient_model& gradient, uint32_t choice, uint64_t most);

// First elements of `parts` nearly equal parts, and the number of elements behind the last.
std::vector<uint64_t> cuts(const penstock_gradient_model& gradient, uint32_t choice,
                           uint64_t parts);

// What a gradient alone takes from its readiness on in `parts` parts. Each is encoded, sent and
// decoded; the engine works on one while another is on its way, so that of all parts but one only
// the slower of the two counts:
//   e + x + d + (parts - 1) max(e + d, x).
// SeCoPa (HiPress, section 4) has the same parts and calls; its sum has no pipeline, and servers or
// a ring in place of one message.
double time_of(const penstock_model& model, uint64_t gradient, uint32_t choice, uint64_t parts);

// The number of parts that takes least; among equals the smallest.
Decision decide(const penstock_model& model, uint64_t gradient, uint32_t choice, uint64_t most);

}  // namespace hipress
