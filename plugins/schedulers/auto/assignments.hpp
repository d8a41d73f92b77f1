// The assignments that are worth a trial. An assignment chooses one candidate for each gradient,
// and has the best buckets that were found for this choice.
#pragma once

#include "chosen_model.hpp"

#include <planning/plan.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace automatic {

struct Assignment {
  std::string name;  // for messages
  Choices choices;
  penstock::planning::Plan plan;
  double step_us = 0;  // forecast: backward and the exposed time after it, mean over phases
};

// Returns first the assignment in which every gradient that can use `dense` uses it. At most `most`
// others follow whose forecast is shorter than the forecast of dense, the shortest first. They are
// found among: one compressor for all gradients, for each compressor that candidates name; for each
// gradient the candidate that is fastest for it alone; and the best single compressor with
// gradients up to some size dense. Candidates must be measured.
std::vector<Assignment> assignments_of(const penstock_model& model, std::string_view dense,
                                       uint64_t most);

}  // namespace automatic
