#include "core/plan/planner.hpp"

#include "core/plan/route.hpp"
#include "core/plugin/c_struct.hpp"

#include <penstock/validate.hpp>

#include <algorithm>

namespace penstock {
namespace {

// Collects the plan that a scheduler writes.
class Collector {
 public:
  Collector(Plan& plan, uint32_t default_route) : plan_(plan), default_route_(default_route) {
    sink_.struct_size = sizeof sink_;
    sink_.context = this;
    sink_.add_bucket = [](void* context, const penstock_bucket* bucket) {
      return to_c(static_cast<Collector*>(context)->add(bucket));
    };
    sink_.add_message = [](void* context, uint32_t phase, uint32_t bucket, uint32_t leg,
                           uint32_t round) -> penstock_status* {
      static_cast<Collector*>(context)->plan_.messages.push_back({phase, bucket, leg, round});
      return nullptr;
    };
    sink_.explain = [](void* context, penstock_str line) {
      static_cast<Collector*>(context)->plan_.explanation.emplace_back(view(line));
    };
  }
  const penstock_plan_sink* c() const { return &sink_; }

 private:
  Status add(const penstock_bucket* theirs) {
    penstock_bucket bucket{};
    PENSTOCK_TRY(take_struct(theirs, "penstock_bucket", bucket));
    if (const auto fault = sdk::fault_in(bucket))
      return internal("bucket {} of its plan: {}", plan_.buckets.size(), fault->text());
    planning::Bucket& plan = plan_.buckets.emplace_back();
    plan.phase = bucket.phase;
    plan.route = bucket.route != 0 ? bucket.route : default_route_;
    plan.waits_from = planning::waits_from_of(plan.route);
    plan.launch = bucket.launch != 0 ? bucket.launch : uint32_t{PENSTOCK_LAUNCH_READY};
    if (plan.launch == PENSTOCK_LAUNCH_NEXT_FORWARD)
      return unimplemented("a scheduler launches the first leg of a route in the next forward");
    if (bucket.n_legs != 0) PENSTOCK_TRY(take_legs(bucket, plan));
    for (uint64_t i = 0; i < bucket.n_pieces; ++i) {
      penstock_piece piece{};
      PENSTOCK_TRY(take_struct(bucket.pieces[i], "penstock_piece", piece));
      if (piece.device_type != 0 && piece.device_type != PENSTOCK_DEVICE_CPU)
        return internal(
            "bucket {} of its plan: pieces[{}].device_type is {}, expected the CPU (1), or 0",
            plan_.buckets.size() - 1, i, piece.device_type);
      plan.pieces.push_back({piece.gradient, piece.first, piece.numel, piece.choice});
    }
    return {};
  }

  // Explicit legs must be the legs of a route. Only their start times are free.
  Status take_legs(const penstock_bucket& bucket, planning::Bucket& plan) {
    std::vector<penstock_leg> legs(bucket.n_legs);
    for (uint64_t i = 0; i < bucket.n_legs; ++i)
      PENSTOCK_TRY(take_struct(bucket.legs[i], "penstock_leg", legs[i]));
    plan.route = bucket.route;
    for (const planning::Route& each : kRoutes) {
      const uint32_t route = each.number;
      if ((bucket.route == 0 || bucket.route == route) && are_legs_of(route, legs))
        plan.route = route;
    }
    if (plan.route == 0 || !are_legs_of(plan.route, legs))
      return failed_precondition(
          "bucket {} of its plan names legs that form no route; legs are (level, pattern, coded): "
          "flat (1, 1, 1); split (1, 2, 1), (1, 3, 1); hierarchical (2, 2, 0), (3, 1, 1), (2, 3, "
          "0); shard (1, 4, 1), (1, 3, 1)",
          plan_.buckets.size() - 1);
    plan.waits_from = planning::kNoLeg;
    for (uint32_t i = 0; i < legs.size(); ++i) {
      if (legs[i].launch > PENSTOCK_LAUNCH_NEXT_FORWARD ||
          (i > 0 && legs[i].launch == PENSTOCK_LAUNCH_SET_COMPLETE))
        return internal("bucket {} of its plan: legs[{}].launch is {}, expected {}",
                        plan_.buckets.size() - 1, i, legs[i].launch,
                        i == 0 ? "ready (1) or set complete (2)" : "ready (1) or next forward (3)");
      if (i == 0 && legs[i].launch != 0) plan.launch = legs[i].launch;
      if (i > 0 && legs[i].launch == PENSTOCK_LAUNCH_NEXT_FORWARD)
        plan.waits_from = std::min(plan.waits_from, i);
      else if (i > plan.waits_from && legs[i].launch != 0)
        return internal(
            "bucket {} of its plan: legs[{}] starts when it is ready, but an earlier leg waits for "
            "the next forward",
            plan_.buckets.size() - 1, i);
    }
    return {};
  }
  static bool are_legs_of(uint32_t route, const std::vector<penstock_leg>& legs) {
    const auto kinds = legs_of(route);
    return std::equal(kinds.begin(), kinds.end(), legs.begin(), legs.end(),
                      [](const LegKind& kind, const penstock_leg& leg) {
                        return kind.level == leg.level && kind.pattern == leg.pattern &&
                               kind.is_dense() == (leg.coded == 0);
                      });
  }

  Plan& plan_;
  uint32_t default_route_;
  penstock_plan_sink sink_{};
};

}  // namespace

bool reads_lines(const SchedulerInstance& scheduler) {
  constexpr uint32_t kSince = std::min(4, PENSTOCK_ABI_MINOR);
  return scheduler.plugin() != nullptr && scheduler.plugin()->record.abi_minor >= kSince;
}

bool looks_at_costs(const SchedulerInstance& scheduler) {
  constexpr uint32_t kObservations = PENSTOCK_SCHEDULER_MEASURES | PENSTOCK_SCHEDULER_CHOOSES;
  return (scheduler.traits().flags & kObservations) != 0;
}

Result<Plan> make_plan(SchedulerInstance& scheduler, const penstock_model& model) {
  Plan plan;
  plan.period = model.period;
  Collector collector(plan, model.route != 0 ? model.route : uint32_t{PENSTOCK_ROUTE_FLAT});
  PENSTOCK_TRY(from_c(scheduler->plan(scheduler.self(), &model, collector.c()))
                   .with_context(fmt::format("scheduler '{}'", scheduler.name())));
  std::stable_sort(
      plan.buckets.begin(), plan.buckets.end(),
      [](const planning::Bucket& a, const planning::Bucket& b) { return a.phase < b.phase; });
  return plan;
}

}  // namespace penstock
