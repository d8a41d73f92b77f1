// A plan as plain values, and a sink with which a simulator or a test records the plan of a
// scheduler.
#pragma once

#include <penstock/scheduler.h>
#include <planning/route.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace penstock::planning {

struct Piece {
  uint64_t gradient = 0;
  uint64_t first = 0;
  uint64_t numel = 0;
  uint32_t choice = 0;
  bool operator==(const Piece&) const = default;
};

constexpr uint32_t kNoLeg = UINT32_MAX;

// The first leg of a route that always waits for the next forward, or kNoLeg.
constexpr uint32_t waits_from_of(uint32_t route) {
  return halves_sums(route) ? 1 : kNoLeg;
}

struct Bucket {
  std::vector<Piece> pieces;
  uint32_t route = PENSTOCK_ROUTE_FLAT;
  uint32_t phase = 0;
  uint32_t launch = PENSTOCK_LAUNCH_READY;
  // The first leg of the route that waits for the next forward; the later legs follow it.
  uint32_t waits_from = waits_from_of(route);
  bool operator==(const Bucket&) const = default;
};

// The place of a message in the sequence of an ORDERED channel: phase, bucket within the phase,
// leg, round.
using MessagePlace = std::array<uint32_t, 4>;

struct Plan {
  std::vector<Bucket> buckets;           // of all phases, in order of addition
  std::vector<MessagePlace> messages;    // empty: the order of buckets
  std::vector<std::string> explanation;  // lines for people
  uint32_t period = 1;                   // phases; set by the caller, from the model
  // Explanations are no part of a plan's meaning.
  bool operator==(const Plan& other) const {
    return buckets == other.buckets && messages == other.messages && period == other.period;
  }
};

// A bucket of whole gradients with their first candidate.
inline Bucket whole_gradients(const penstock_model& model, const std::vector<uint64_t>& gradients,
                              uint32_t phase = 0, uint32_t route = PENSTOCK_ROUTE_FLAT) {
  Bucket bucket{{}, route, phase, PENSTOCK_LAUNCH_READY};
  for (uint64_t gradient : gradients)
    bucket.pieces.push_back({gradient, 0, model.gradients[gradient]->numel, 0});
  return bucket;
}

// How many gradients the buckets of a phase hold, as people read it: "2, 14, 57".
inline std::string counts_text(const Plan& plan, uint32_t phase) {
  std::string text;
  for (const Bucket& bucket : plan.buckets)
    if (bucket.phase == phase)
      text += (text.empty() ? "" : ", ") + std::to_string(bucket.pieces.size());
  return text;
}

// Records the plan that a scheduler writes. It refuses nothing, and must outlive every use of the
// sink.
class PlanRecorder {
 public:
  PlanRecorder() {
    sink_.struct_size = sizeof sink_;
    sink_.context = &plan_;
    sink_.add_bucket = [](void* context, const penstock_bucket* bucket) {
      Bucket copy{{},
                  bucket->route,
                  bucket->phase,
                  bucket->launch == 0 ? uint32_t{PENSTOCK_LAUNCH_READY} : bucket->launch};
      for (uint64_t i = 0; i < bucket->n_pieces; ++i) {
        const penstock_piece& piece = *bucket->pieces[i];
        copy.pieces.push_back({piece.gradient, piece.first, piece.numel, piece.choice});
      }
      static_cast<Plan*>(context)->buckets.push_back(std::move(copy));
      return static_cast<penstock_status*>(nullptr);
    };
    sink_.add_message = [](void* context, uint32_t phase, uint32_t bucket, uint32_t leg,
                           uint32_t round) {
      static_cast<Plan*>(context)->messages.push_back({phase, bucket, leg, round});
      return static_cast<penstock_status*>(nullptr);
    };
    sink_.explain = [](void* context, penstock_str text) {
      static_cast<Plan*>(context)->explanation.emplace_back(text.data, text.size);
    };
  }
  PlanRecorder(const PlanRecorder&) = delete;
  PlanRecorder& operator=(const PlanRecorder&) = delete;
  const penstock_plan_sink* sink() const { return &sink_; }
  const Plan& plan() const { return plan_; }

 private:
  penstock_plan_sink sink_{};
  Plan plan_;
};

}  // namespace penstock::planning
