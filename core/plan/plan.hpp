// Plans in the core: checked, and sent to the other ranks as bytes.
#pragma once

#include "core/base/status.hpp"

#include <planning/plan.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

// Which gradients travel together, on which route, and when: phase by phase, within a phase in
// order of priority. The bytes are equal on every rank.
using planning::Plan;

std::string plan_bytes(const Plan& plan);
// INVALID_ARGUMENT for bytes that are not a plan.
Result<Plan> plan_from_bytes(std::string_view bytes);

// The facts against which a plan is checked.
struct PlanFacts {
  std::vector<uint64_t> numel;     // per gradient
  std::vector<std::string> names;  // per gradient
  struct Candidate {
    uint64_t part_alignment = 0;  // 0: indivisible
    uint64_t routes = 0;          // a bit for each PENSTOCK_ROUTE_* that it can take
    bool keeps = false;           // its memory keeps the part that is not sent
  };
  std::vector<std::vector<Candidate>> candidates;  // per gradient
  std::vector<uint32_t> given_buckets;             // per gradient, or PENSTOCK_NO_BUCKET
  uint32_t period = 1;
  uint32_t route = 0;               // the requested route; 0: the scheduler chooses
  uint64_t offered = ~uint64_t{0};  // a bit for each route that the scheduler supports
  bool forward_waits = false;       // the frontend can wait for gradients in the next forward
  bool buckets_are_given = false;
};

// Checks that every gradient is in at most one place per phase and in at least one phase; ranges
// are legal and aligned; nothing is empty or unknown; given buckets are unchanged. Each route must
// be possible for its gradients and have equal codings in all phases. Only gradients whose memory
// keeps unsent values may be left out of a phase. The sequence must list each message once. Errors
// name `scheduler` and the gradient.
Status check_plan(const Plan& plan, const PlanFacts& facts, std::string_view scheduler);

}  // namespace penstock
