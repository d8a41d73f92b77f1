// Plans as the core takes them: checked, and on their way to the other ranks as bytes.
#pragma once

#include "core/base/status.hpp"

#include <planning/plan.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

// Which gradients travel together, by which route, and when: phase by phase, within a phase in
// order of priority. The same bytes on every rank.
using planning::Plan;

std::string plan_bytes(const Plan& plan);
// INVALID_ARGUMENT for bytes that are no plan.
Result<Plan> plan_from_bytes(std::string_view bytes);

// What a plan is checked against.
struct PlanFacts {
  std::vector<uint64_t> numel;                        // per gradient
  std::vector<std::string> names;                     // per gradient
  std::vector<uint32_t> n_candidates;                 // per gradient
  std::vector<std::vector<uint64_t>> part_alignment;  // per gradient and candidate
  uint32_t period = 1;
};

// Whether every gradient is in at most one place per phase and in at least one phase, ranges are
// legal and aligned, nothing is empty or unknown, and the sequence lists messages that there are,
// once each. Errors name `scheduler` and the gradient.
Status check_plan(const Plan& plan, const PlanFacts& facts, std::string_view scheduler);

}  // namespace penstock
