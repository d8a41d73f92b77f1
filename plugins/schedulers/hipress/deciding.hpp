// HiPress's decision for one gradient: to compress it or not, and into how many parts to cut it.
#pragma once

#include <penstock/scheduler.h>

#include <cstdint>
#include <vector>

namespace hipress {

struct Decision {
  uint32_t choice = 0;  // index into the gradient's candidates
  uint64_t parts = 1;
  double time_us = 0;  // time of the parts in a pipeline, summed over phases
};

// The largest number of parts, at most `most`, into which a gradient may be cut with this
// candidate. Cuts lie at multiples of the alignment of the candidate.
uint64_t most_parts(const penstock_gradient_model& gradient, uint32_t choice, uint64_t most);

// The first elements of `parts` nearly equal parts, followed by the number of elements.
std::vector<uint64_t> cuts(const penstock_gradient_model& gradient, uint32_t choice,
                           uint64_t parts);

// The time that a gradient alone takes in `parts` parts, from its readiness on. Each part is
// encoded (e), sent (x) and decoded (d). The engine works on one part while another part is sent,
// so for all parts but one only the slower of the two activities counts:
//   e + x + d + (parts - 1) max(e + d, x).
// SeCoPa (HiPress, section 4) has equal parts and calls; but its sum has no pipeline, and it has
// servers or a ring instead of one message.
double time_of(const penstock_model& model, uint64_t gradient, uint32_t choice, uint64_t parts);

// Decides for the number of parts that takes the least time; among equal times the smallest number.
Decision decide(const penstock_model& model, uint64_t gradient, uint32_t choice, uint64_t most);

}  // namespace hipress
