// The assignments in which gradients may go out that are worth a trial: what each is given, and the
// best buckets for that.
#pragma once

#include "chosen_model.hpp"

#include <planning/plan.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace automatic {

struct Assignment {
  std::string name;  // for people
  Choices choices;
  penstock::planning::Plan plan;
  double step_us = 0;  // forecast: backward and what is exposed behind it, mean over phases
};

// First the assignment in which every gradient that can is given `dense`; then at most `most`
// others whose forecast is shorter than its, the shortest first. They are found among: all
// gradients with one compressor, for each that candidates name; each gradient with what is soonest
// for it alone; and with the best single compressor, gradients up to some size dense. Candidates
// must be measured.
std::vector<Assignment> assignments_of(const penstock_model& model, std::string_view dense,
                                       uint64_t most);

}  // namespace automatic
