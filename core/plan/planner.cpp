#include "core/plan/planner.hpp"

#include "core/plugin/c_struct.hpp"
#include "core/tensor/dtype.hpp"

#include <penstock/validate.hpp>

#include <algorithm>
#include <deque>

namespace penstock {
namespace {

// The C structs of a model; they point into the facts and into each other.
class ModelView {
 public:
  explicit ModelView(const ModelFacts& facts) {
    for (const GradientModelFacts& gradient : facts.gradients) add(gradient);
    for (const LinkFacts& link : facts.links) {
      penstock_link& c = links_.emplace_back();
      c.struct_size = sizeof c;
      c.alpha_us = link.alpha_us;
      c.beta_us_per_byte = link.beta_us_per_byte;
      c.level = link.level;
      link_pointers_.push_back(&c);
    }
    model_.struct_size = sizeof model_;
    model_.gradients = gradient_pointers_.data();
    model_.n_gradients = gradient_pointers_.size();
    model_.order = facts.order.data();
    model_.links = link_pointers_.data();
    model_.n_links = link_pointers_.size();
    model_.backward_us = facts.backward_us;
    model_.forward_us = facts.forward_us;
    model_.world = facts.world;
    model_.hosts = facts.hosts;
    model_.ranks_per_host = facts.ranks_per_host;
    model_.period = facts.period;
    model_.route = facts.route;
    model_.flags = facts.flags;
  }
  const penstock_model* c() const { return &model_; }

 private:
  void add(const GradientModelFacts& facts) {
    auto& candidates = candidate_pointers_.emplace_back();
    for (const CandidateFacts& candidate : facts.candidates) {
      penstock_candidate& c = candidates_.emplace_back();
      c.struct_size = sizeof c;
      c.compressor = str(candidate.compressor);
      c.phase_bytes = candidate.phase_bytes.data();
      c.encode_fixed_us = candidate.encode_fixed_us;
      c.encode_per_element_us = candidate.encode_per_element_us;
      c.decode_fixed_us = candidate.decode_fixed_us;
      c.decode_per_element_us = candidate.decode_per_element_us;
      c.part_alignment = candidate.part_alignment;
      c.combine = candidate.combine;
      c.n_rounds = candidate.n_rounds;
      candidates.push_back(&c);
    }
    penstock_gradient_model& c = gradients_.emplace_back();
    c.struct_size = sizeof c;
    c.name = str(facts.name);
    c.shape = facts.shape.data();
    c.n_dims = facts.shape.size();
    c.numel = facts.numel;
    c.bytes = facts.numel * dtype_bytes(facts.dtype);
    c.ready_us = facts.ready_us;
    c.forward_us = facts.forward_us;
    c.candidates = candidates.data();
    c.n_candidates = candidates.size();
    c.dtype = facts.dtype;
    c.given_bucket = facts.given_bucket;
    gradient_pointers_.push_back(&c);
  }

  std::deque<penstock_candidate> candidates_;
  std::deque<std::vector<const penstock_candidate*>> candidate_pointers_;
  std::deque<penstock_gradient_model> gradients_;
  std::vector<const penstock_gradient_model*> gradient_pointers_;
  std::deque<penstock_link> links_;
  std::vector<const penstock_link*> link_pointers_;
  penstock_model model_{};
};

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
      static_cast<Collector*>(context)->plan_.sequence.push_back({phase, bucket, leg, round});
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
    BucketPlan& plan = plan_.buckets.emplace_back();
    plan.phase = bucket.phase;
    plan.route = bucket.route != 0 ? bucket.route : default_route_;
    plan.launch = bucket.launch != 0 ? bucket.launch : uint32_t{PENSTOCK_LAUNCH_READY};
    if (plan.launch == PENSTOCK_LAUNCH_NEXT_FORWARD)
      return unimplemented("a scheduler launches the first leg of a route in the next forward");
    for (uint64_t i = 0; i < bucket.n_pieces; ++i) {
      penstock_piece piece{};
      PENSTOCK_TRY(take_struct(bucket.pieces[i], "penstock_piece", piece));
      plan.pieces.push_back({piece.gradient, piece.first, piece.numel, piece.choice});
    }
    return {};
  }
  Plan& plan_;
  uint32_t default_route_;
  penstock_plan_sink sink_{};
};

}  // namespace

Result<Plan> make_plan(SchedulerInstance& scheduler, const ModelFacts& model) {
  Plan plan;
  plan.period = model.period;
  const ModelView model_view(model);
  Collector collector(plan, model.route != 0 ? model.route : uint32_t{PENSTOCK_ROUTE_FLAT});
  PENSTOCK_TRY(from_c(scheduler->plan(scheduler.self(), model_view.c(), collector.c()))
                   .with_context(fmt::format("scheduler '{}'", scheduler.name())));
  std::stable_sort(plan.buckets.begin(), plan.buckets.end(),
                   [](const BucketPlan& a, const BucketPlan& b) { return a.phase < b.phase; });
  return plan;
}

}  // namespace penstock
