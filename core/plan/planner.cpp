#include "core/plan/planner.hpp"

#include "core/plugin/c_struct.hpp"

#include <penstock/validate.hpp>

#include <algorithm>

namespace penstock {
namespace {

// Collects what a scheduler writes.
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
    if (bucket.n_legs != 0)
      return unimplemented(
          "a scheduler spelled out the legs of a route; this version runs the routes flat and "
          "split");
    planning::Bucket& plan = plan_.buckets.emplace_back();
    plan.phase = bucket.phase;
    plan.route = bucket.route != 0 ? bucket.route : default_route_;
    plan.launch = bucket.launch != 0 ? bucket.launch : uint32_t{PENSTOCK_LAUNCH_READY};
    if (plan.launch == PENSTOCK_LAUNCH_NEXT_FORWARD)
      return unimplemented("a scheduler launches the first leg of a route in the next forward");
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
  Plan& plan_;
  uint32_t default_route_;
  penstock_plan_sink sink_{};
};

}  // namespace

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
