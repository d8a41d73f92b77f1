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
  std::vector<uint64_t> numel;     // per gradient
  std::vector<std::string> names;  // per gradient
  struct Candidate {
    uint64_t part_alignment = 0;  // 0: indivisible
    uint64_t routes = 0;          // bit per PENSTOCK_ROUTE_* that it can take
    bool keeps = false;           // its memory keeps what is not sent
  };
  std::vector<std::vector<Candidate>> candidates;  // per gradient
  std::vector<uint32_t> given_buckets;             // per gradient, or PENSTOCK_NO_BUCKET
  uint32_t period = 1;
  uint32_t route = 0;               // asked for; 0: the scheduler's choice
  uint64_t offered = ~uint64_t{0};  // bit per route that the scheduler says it makes
  bool forward_waits = false;       // the frontend can wait for gradients in the next forward
  bool buckets_are_given = false;
};

// Whether every gradient is in at most one place per phase and in at least one phase, ranges are
// legal and aligned, nothing is empty or unknown, given buckets stay as they are, each route is one
// that its gradients can take, in all phases with the same codings, nothing that no memory keeps is
// left out of a phase, and the sequence lists messages that there are, once each. Errors name
// `scheduler` and the gradient.
Status check_plan(const Plan& plan, const PlanFacts& facts, std::string_view scheduler);

}  // namespace penstock
