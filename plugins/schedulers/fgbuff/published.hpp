// FGBuff's planner as its authors coded it, with the constants that they measured.
// Source: github.com/ATC24-FGBuff/FGBuff, state of 2024-01-22; the method only, no code.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fgbuff {

struct PublishedConstants {
  double backward_s = 0;  // backward of the whole model; each gradient takes its share by elements
  double startup_s = 0;   // start-up of one collective
  double slack_s = 0;  // a group closes once its backward time minus saved start-ups is below this
  double density = 1;  // kept fraction, in (0, 1]
  bool accumulator_reset = false;  // true: as meant by the authors; false: as coded
};

// Returns how many gradients each buffer holds, in order of readiness; the counts are positive and
// add up to the number of sizes. `sizes` are elements. Always ends, for any numbers.
std::vector<uint64_t> published_counts(std::span<const uint64_t> sizes,
                                       const PublishedConstants& constants);

}  // namespace fgbuff
