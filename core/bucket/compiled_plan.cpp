#include "core/bucket/compiled_plan.hpp"

#include "core/base/unless_thrown.hpp"
#include "core/bucket/layout.hpp"
#include "core/bucket/on_device/placement.hpp"
#include "core/bucket/program.hpp"
#include "core/comm/channel.hpp"
#include "core/plan/planner.hpp"

#include <algorithm>
#include <map>
#include <new>

namespace penstock {
namespace {

// The messages of eight steps have different tags (exchange.cpp), and a composite makes several
// tags of the tag of a message.
uint64_t most_tags_per_step(const SetContext& context) {
  const bool has_composite = !context.composite_name.empty();
  return SetContext::kTagBetweenSteps / 8 / (has_composite ? kTagsPerMessage : 1);
}

}  // namespace

Result<std::unique_ptr<CompiledPlan>> CompiledPlan::make(
    SetContext& context, std::shared_ptr<const BoundScheme> bound_scheme, Plan plan,
    const Gradients& gradients, const StateStore* earlier) {
  // An error must be returned, because the other ranks wait for this rank.
  auto made = unless_thrown([&]() -> Result<std::unique_ptr<CompiledPlan>> {
    std::unique_ptr<CompiledPlan> compiled(
        new CompiledPlan(std::move(bound_scheme), std::move(plan), context.forgets, earlier));
    PENSTOCK_TRY(compiled->make_buckets(context, gradients));
    compiled->index(gradients.size());
    compiled->number_messages();
    PENSTOCK_TRY(compiled->check_tags(context));
    // Ranks may count differently: on route `hierarchical` some ranks own nothing. A tag must be
    // equal on all ranks of a link, so every plan takes the largest number.
    compiled->tags_per_step_ = most_tags_per_step(context);
    compiled->states_.settle();
    return compiled;
  });
  if (made.status().code() != Code::out_of_memory) return made;
  return made.status().with_context(fmt::format("the buckets of set '{}'", context.name));
}

Status CompiledPlan::make_buckets(SetContext& context, const Gradients& gradients) {
  phases_.resize(bound_scheme_->period());
  ScratchNeed need;
  std::vector<std::vector<bool>> present(period(), std::vector<bool>(gradients.size()));
  std::vector<uint32_t> routes(gradients.size(), PENSTOCK_ROUTE_FLAT);
  for (const planning::Bucket& bucket : plan_.buckets) {
    for (const planning::Piece& piece : bucket.pieces) {
      present[bucket.phase][piece.gradient] = true;
      routes[piece.gradient] = bucket.route;
    }
    PENSTOCK_TRY(make_bucket(context, bucket, gradients, false, need));
  }
  // Gradients that a phase leaves out are only compensated in it, on the route on which their
  // memories keep unsent values. The gradients of one route share a bucket.
  for (uint32_t phase = 0; phase < period(); ++phase) {
    std::map<uint32_t, planning::Bucket> rest;
    for (size_t i = 0; i < gradients.size(); ++i)
      if (!present[phase][i]) rest[routes[i]].pieces.push_back({i, 0, gradients[i]->numel, 0});
    for (auto& [route, bucket] : rest) {
      bucket.phase = phase;
      bucket.route = route;
      PENSTOCK_TRY(make_bucket(context, bucket, gradients, true, need));
    }
  }
  PENSTOCK_TRY(make_scratch(context.host, need));
  return context.elsewhere == nullptr ? Status() : make_scratch(*context.elsewhere, need);
}

Status CompiledPlan::make_scratch(WorkPlace& place, const ScratchNeed& need) {
  auto made = unless_thrown([&] { return place.make_scratch(need.bytes); });
  if (made.status().code() == Code::out_of_memory)
    return out_of_memory("compressor '{}' wants {} bytes of scratch for a bucket of {} gradients",
                         need.compressor, need.bytes, need.n_gradients);
  PENSTOCK_TRY(made.status());
  scratch_.emplace_back(&place, std::move(made.value()));
  return {};
}

Status CompiledPlan::make_bucket(SetContext& context, const planning::Bucket& plan,
                                 const Gradients& gradients, bool only_compensates,
                                 ScratchNeed& scratch) {
  Phase& phase = phases_[plan.phase];
  auto bucket = std::make_unique<BucketRun>(context, plan, static_cast<uint32_t>(phase.size()));
  bucket->only_compensates = only_compensates;
  bucket->ends_at_owners = bound_scheme_->results_at_owners();
  bucket->ranks_at_once = bound_scheme_->ranks_at_once();
  for (const planning::Piece& piece : plan.pieces) {
    PieceRun& run = bucket->pieces.emplace_back();
    const ItemNeeds& needs = bound_scheme_->options(piece.gradient)[piece.choice].needs;
    run.gradient = gradients[piece.gradient].get();
    run.piece = piece;
    run.place = &context.place_of(*run.gradient);
    run.dtype = needs.dtype;
    run.widened = run.dtype != run.gradient->dtype;
    // Finish adds the carry in these cases, because a carry must count once: a momentum would
    // repeat it, and a shift would take it back in the next step.
    run.carry_joins_result = needs.memory_facts.owns_momentum || needs.memory_facts.shifts;
    if (run.widened) {
      PENSTOCK_ASSIGN(run.wide, run.place->make(piece.numel * sizeof(float)));
    }
  }
  PENSTOCK_TRY(check_way(*bucket));
  make_codings(*bucket, *bound_scheme_);
  for (auto& coding : bucket->codings) PENSTOCK_TRY(plan_items(*bucket, *coding, states_, scratch));
  PENSTOCK_TRY(lay_out(*bucket, states_));
  PENSTOCK_ASSIGN(bucket->placement, make_placement(*bucket));
  // Without a scheduler the times of calls are measured too.
  const SchedulerInstance* scheduler = bound_scheme_->scheduler();
  bucket->is_watched = scheduler == nullptr || looks_at_costs(*scheduler);
  PENSTOCK_TRY(make_program(*bucket));
  phase.push_back(std::move(bucket));
  return {};
}

bool CompiledPlan::announces() const {
  bool any = false;
  for (const Phase& phase : phases_)
    for (const auto& bucket : phase)
      bucket->each_message([&](uint32_t, uint32_t, const MessageRun& message) {
        any = any || message.is_announced();
      });
  return any;
}

void CompiledPlan::index(size_t n_gradients) {
  where_.assign(period(), std::vector<std::vector<BucketRun*>>(n_gradients));
  for (uint32_t phase = 0; phase < period(); ++phase)
    for (auto& bucket : phases_[phase]) {
      defers_ = defers_ || bucket->defers();
      for (const planning::Piece& piece : bucket->plan.pieces) {
        auto& in = where_[phase][piece.gradient];
        if (!in.empty() && in.back() == bucket.get()) continue;
        in.push_back(bucket.get());
        ++bucket->n_gradients;
      }
    }
}

// Numbers the messages of a phase on each of its links: in the order of the plan's list, else
// bucket after bucket, leg after leg, round after round. All members of a link's group compute
// equal numbers.
void CompiledPlan::number_messages() {
  messages_.resize(period());
  forward_legs_.resize(period());
  std::map<planning::MessagePlace, size_t> places;
  for (size_t i = 0; i < plan_.messages.size(); ++i) places.try_emplace(plan_.messages[i], i);
  for (uint32_t phase = 0; phase < period(); ++phase) {
    struct Listed {
      size_t position;
      uint32_t leg;
      MessageRun* message;
    };
    std::vector<Listed> listed;
    for (auto& bucket : phases_[phase])
      bucket->each_message([&](uint32_t leg, uint32_t round, MessageRun& message) {
        const auto found = places.find({phase, bucket->number, leg, round});
        listed.push_back(
            {found != places.end() ? found->second : plan_.messages.size(), leg, &message});
      });
    std::stable_sort(listed.begin(), listed.end(),
                     [](const auto& a, const auto& b) { return a.position < b.position; });
    for (const auto& [position, leg, message] : listed) {
      message->order = messages_[phase].try_emplace(message->link, 0).first->second++;
      add_forward_leg(*message->bucket, leg);
    }
    for (const auto& [link, count] : messages_[phase])
      tags_per_step_ = std::max(tags_per_step_, count);
  }
}

Status CompiledPlan::check_tags(const SetContext& context) const {
  const uint64_t most = most_tags_per_step(context);
  if (tags_per_step_ <= most) return {};
  return failed_precondition(
      "set '{}' has {} messages in a step, at most {} are possible, with gathers in slices of {} "
      "of {} ranks; raise runtime.arena_limit_mb, or let the scheduler make fewer buckets",
      context.name, tags_per_step_, most, bound_scheme_->ranks_at_once(), context.world);
}

// Lists the bucket by the first message of its first leg that waits for the next forward.
void CompiledPlan::add_forward_leg(BucketRun& bucket, uint32_t leg) {
  if (!bucket.legs[leg].waits_for_forward || bucket.forward_bytes != 0) return;
  for (const auto& message : bucket.legs[leg].messages.front())
    bucket.forward_bytes +=
        message->message.count * dtype_bytes(message->message.dtype) * message->group_size();
  bucket.forward_bytes = std::max<uint64_t>(bucket.forward_bytes, 1);  // now it is listed
  forward_legs_[bucket.plan.phase].push_back(&bucket);
}

}  // namespace penstock
