// A plan: which gradients travel together, by which route, and when. The same bytes on every rank.
#pragma once

#include "core/base/status.hpp"

#include <penstock/scheduler.h>

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct PiecePlan {
  uint64_t gradient = 0;
  uint64_t first = 0;  // element range [first, first + numel)
  uint64_t numel = 0;
  uint32_t choice = 0;  // index into the gradient's candidates
  bool operator==(const PiecePlan&) const = default;
};

struct BucketPlan {
  std::vector<PiecePlan> pieces;
  uint32_t phase = 0;
  uint32_t route = PENSTOCK_ROUTE_FLAT;
  uint32_t launch = PENSTOCK_LAUNCH_READY;
  bool operator==(const BucketPlan&) const = default;
};

// One message of the agreed order, for ORDERED channels.
struct MessagePlan {
  uint32_t phase = 0;
  uint32_t bucket = 0;  // number within the phase
  uint32_t leg = 0;
  uint32_t round = 0;
  bool operator==(const MessagePlan&) const = default;
};

struct Plan {
  uint32_t period = 1;
  std::vector<BucketPlan> buckets;    // phase by phase, within a phase in order of priority
  std::vector<MessagePlan> sequence;  // empty: bucket after bucket
  std::vector<std::string> explanation;
  // What is said of a plan is no part of what it does.
  bool operator==(const Plan& other) const {
    return period == other.period && buckets == other.buckets && sequence == other.sequence;
  }

  std::string to_bytes() const;
  // INVALID_ARGUMENT for bytes that are no plan.
  static Result<Plan> from_bytes(std::string_view bytes);
};

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
