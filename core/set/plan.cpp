// What a set fits and plans, before its first step and for every change: channels, fittings, and
// what all ranks agree on.

#include "core/base/hash.hpp"
#include "core/base/out_of_memory.hpp"
#include "core/bucket/needs_text.hpp"
#include "core/fit/offers.hpp"
#include "core/fit/resolve.hpp"
#include "core/set/set.hpp"

#include <algorithm>
#include <numeric>

namespace penstock {

Status Set::open_channels() {
  const Scheme scheme = config_.at_step(0);
  const CollectiveInstance& transport = services_.transports.world();
  PENSTOCK_TRY(check_opened(scheme, transport, services_.registry));
  if (scheme.transport.empty()) {
    if (scheme.collective != transport.name())
      return failed_precondition(
          "the scheme names the collective '{}', but the run joined over '{}': one transport per "
          "run",
          scheme.collective, transport.name());
  } else {
    PENSTOCK_ASSIGN(composite_, make_instance<penstock_collective>(scheme, scheme.collective,
                                                                   services_.registry));
    composite_id = composite_->plugin()->record.id;
    composite_name = scheme.collective;
    transport_name = scheme.transport;
  }
  return open_level(PENSTOCK_LEVEL_WORLD);
}

// What the legs of a level need, where it is not open yet.
Status Set::open_level(uint32_t level) {
  LevelLinks& links = at(level);
  if (links.transport.channel != nullptr) return {};
  // Different groups of a level open channels side by side, under names of their own.
  const uint32_t first = links.group.ranks().front();
  const std::string which =
      level == PENSTOCK_LEVEL_LOCAL   ? fmt::format(" on the host of rank {}", first)
      : level == PENSTOCK_LEVEL_CROSS ? fmt::format(" across hosts with rank {}", first)
                                      : "";
  const auto open = [&](std::string_view what, CollectiveInstance& collective,
                        Channel* base) -> Result<Channel*> {
    PENSTOCK_ASSIGN(Channel * opened,
                    services_.run.open_channel(fmt::format("set {}{}{}", name, what, which),
                                               links.group, collective, base));
    open_channels_.push_back(opened);
    return opened;
  };
  CollectiveInstance& carrier = services_.transports.at(level);
  PENSTOCK_ASSIGN(Channel * transport, open("", carrier, nullptr));
  if (composite_ != nullptr && level != PENSTOCK_LEVEL_LOCAL) {
    PENSTOCK_ASSIGN(Channel * base, open(" base", carrier, nullptr));
    PENSTOCK_ASSIGN(links.composite.channel, open(" " + composite_name, *composite_, base));
  }
  links.transport.channel = transport;
  return {};
}

// The levels that the routes of a plan go over.
Status Set::open_levels_of(const Plan& plan) {
  for (const planning::Bucket& bucket : plan.buckets)
    for (const LegKind& leg : legs_of(bucket.route)) PENSTOCK_TRY(open_level(leg.level));
  return {};
}

// ---- fittings ----

Result<std::shared_ptr<const Fitting>> Set::fit(uint64_t at) {
  const Scheme scheme = config_.at_step(at);
  std::vector<const DeclaredGradient*> declared;
  for (const auto& gradient : gradients_) declared.push_back(gradient.get());
  return Fitting::make(scheme, choose(scheme, declared), services_.registry,
                       {.world = world,
                        .owners_per_host = owners_per_host,
                        .forward_waits = (frontend_flags_ & PENSTOCK_SET_DEFERRED_UPDATE) != 0,
                        .buckets_are_given = (frontend_flags_ & PENSTOCK_SET_GIVEN_BUCKETS) != 0,
                        .results_at_owners = (frontend_flags_ & PENSTOCK_SET_RESULT_AT_OWNER) != 0,
                        .calls = planning_calls,
                        .set = name});
}

Result<FitAdvice> Set::check_fit_of(const Fitting& fitting) const {
  FitInput input;
  const CollectiveInstance& transport = services_.transports.world();
  input.transport = collective_facts(transport.name(), transport.traits());
  for (const uint32_t level : {PENSTOCK_LEVEL_LOCAL, PENSTOCK_LEVEL_CROSS})
    if (services_.transports.has_own(level)) {
      const CollectiveInstance& own = services_.transports.at(level);
      input.of_level[level] = collective_facts(own.name(), own.traits());
    }
  const uint32_t level = fitting.scheme().route == PENSTOCK_ROUTE_HIERARCHICAL
                             ? PENSTOCK_LEVEL_LOCAL
                             : PENSTOCK_LEVEL_WORLD;
  if (const Channel* direct = at(level).direct.channel; direct != nullptr)
    input.between_devices =
        collective_facts(services_.transports.for_devices()->name(), direct->traits);
  input.collective =
      composite_ ? collective_facts(composite_->name(), composite_->traits()) : input.transport;
  input.frontend = frontend_flags_;
  input.deterministic = services_.config.runtime().deterministic;
  input.arena_limit_bytes = services_.config.runtime().arena_limit_mb << 20;
  fitting.describe(input);
  const RegistryOffers offers(services_.registry, planning_calls);
  input.offers = &offers;
  return check_fit(input);
}

// All stages before the first step: what does not fit must not show in the middle of a run.
Result<std::vector<Stage>> Set::fit_stages() {
  std::vector<Stage> stages;
  std::vector<StageTraffic> traffic;
  for (uint64_t stage : config_.stages()) {
    const auto fits = [&]() -> Status {
      PENSTOCK_ASSIGN(const auto fitting, fit(stage));
      PENSTOCK_ASSIGN(const FitAdvice advice, check_fit_of(*fitting));
      traffic.push_back(fitting->traffic(carriers(), stage));
      stages.push_back({stage, fitting});
      if (stage == 0) warn(advice);  // those of others come when they are in force
      return {};
    };
    const Status status = fits();
    PENSTOCK_TRY(stage == 0 ? status : status.with_context(fmt::format("from step {} on", stage)));
  }
  warn(traffic);
  return stages;
}

void Set::warn(const FitAdvice& advice) {
  if (rank != 0) return;
  for (const std::string& warning : advice.warnings)
    services_.log.write_once(LogLevel::warning, "fit", warning);
}

// The flag stays only where it fits: a user who mends it goes on.
Status Set::optimizer_momentum() {
  const uint32_t before = frontend_flags_;
  frontend_flags_ |= PENSTOCK_SET_OPTIMIZER_MOMENTUM;
  const Status status = check_fit_of(works_->fitting()).status();
  if (!status.ok()) frontend_flags_ = before;
  return status;
}

// ---- the plan ----

// What is kept of a resident lies on its device, and cannot be handed over: where the scheme leaves
// the route to the scheduler, it stays on the one for which it was decided.
uint64_t Set::routes_open_to(const Gradient& gradient, const Fitting& fitting) const {
  const Scheme& scheme = fitting.scheme();
  const bool is_bound = gradient.resident != nullptr && scheme.where.count("route") == 0;
  return is_bound ? uint64_t{1} << scheme.route : ~uint64_t{0};
}

PlanFacts Set::plan_facts_of(const Fitting& fitting) const {
  PlanFacts facts = fitting.plan_facts();
  for (size_t i = 0; i < gradients_.size(); ++i)
    for (PlanFacts::Candidate& candidate : facts.candidates[i])
      candidate.routes &= routes_open_to(*gradients_[i], fitting);
  return facts;
}

planning::ModelEntries Set::model_of(const Fitting& fitting) const {
  planning::ModelEntries model = fitting.model();
  for (size_t i = 0; i < gradients_.size(); ++i) {
    planning::GradientEntry& gradient = model.gradients[i];
    for (planning::CandidateEntry& candidate : gradient.candidates) {
      candidate.routes &= routes_open_to(*gradients_[i], fitting);
      if (const CallLines* lines =
              measured_.lines(candidate.compressor, gradients_[i]->resident != nullptr)) {
        candidate.encode_fixed_us = lines->encode.fixed();
        candidate.encode_per_element_us = lines->encode.per_element();
        candidate.decode_fixed_us = lines->decode.fixed();
        candidate.decode_per_element_us = lines->decode.per_element();
      }
    }
    if (i < ready_us_.size()) gradient.ready_us = ready_us_[i];
    if (i < forward_us_.size()) gradient.forward_us = forward_us_[i];
  }
  // Backward reaches the parameters in the reverse of their registration, until measured otherwise.
  model.order.resize(gradients_.size());
  std::iota(model.order.rbegin(), model.order.rend(), uint64_t{0});
  if (!given_order_.empty())
    model.order = given_order_;
  else if (!ready_us_.empty())
    std::stable_sort(model.order.begin(), model.order.end(),
                     [&](uint64_t a, uint64_t b) { return ready_us_[a] < ready_us_[b]; });
  add_links(fitting, model);
  model.backward_us = backward_us_;
  model.forward_us = whole_forward_us_;
  model.hosts = services_.topology.cross_size;
  model.ranks_per_host = services_.topology.local_size;
  if ((frontend_flags_ & PENSTOCK_SET_DEFERRED_UPDATE) != 0)
    model.flags |= PENSTOCK_MODEL_FORWARD_WAITS;
  if ((frontend_flags_ & PENSTOCK_SET_GIVEN_BUCKETS) != 0)
    model.flags |= PENSTOCK_MODEL_GIVEN_BUCKETS;
  if (!ready_us_.empty()) model.flags |= PENSTOCK_MODEL_MEASURED;
  return model;
}

// Rank 0 plans; its bytes go to the others, who check them.
Result<Plan> Set::agree_on_plan(const Fitting& fitting) {
  const TimedSpan span(timeline, "negotiate", "application", step.index);
  std::string mine;
  Status status;
  if (rank == 0) {
    const PluginCall noted(planning_calls, "scheduler", fitting.scheduler()->name(), "plan", {},
                           name, step.index);
    status = unless_out_of_memory([&]() -> Status {
      PENSTOCK_ASSIGN(const Plan plan, make_plan(*fitting.scheduler(),
                                                 planning::OwnedModel(model_of(fitting)).model()));
      mine = plan_bytes(plan);
      return {};
    });
  }
  // An empty text tells the others that rank 0 could not plan.
  PENSTOCK_ASSIGN(
      const std::string bytes,
      services_.control.hear_first(fmt::format("plan of set {} at step {}", name, step.index), mine,
                                   group_.ranks(), meeting_us_));
  // What follows comes out alike on all ranks.
  PENSTOCK_TRY(refused(status));
  if (bytes.empty())
    return refused(peer_failed("set '{}': rank {} could not make a plan; its error says why", name,
                               group_.ranks().front()));
  Result<Plan> plan = plan_from_bytes(bytes);
  PENSTOCK_TRY(refused(plan.status()));
  PENSTOCK_TRY(
      refused(check_plan(plan.value(), plan_facts_of(fitting), fitting.scheduler()->name())));
  return plan;
}

// Ranks of one plan may still have asked their plugins to another end: a rank that sends nothing,
// or another number of bytes, would leave the others with wrong sums. `works` may be the error of
// this rank, which the others then read.
Status Set::agree_on_needs(const Result<std::unique_ptr<Works>>& works) {
  const std::string text = works.ok()
                               ? needs_text(works.value()->phases())
                               : fmt::format("cannot be planned: {}\n", works.status().message());
  const std::string topic = fmt::format("needs of set {} at step {}", name, step.index);
  // The texts are long and nearly always equal, so a hash goes first.
  Status agreed = services_.control.agree(topic + ", hashed", hash_text(hash64(text)),
                                          group_.ranks(), meeting_us_);
  if (agreed.code() == Code::mismatch)
    agreed = services_.control.agree(topic, text, group_.ranks(), meeting_us_);
  const bool all_know = agreed.ok() || agreed.code() == Code::mismatch;
  if (!works.ok()) agreed = works.status();
  return all_know ? refused(agreed) : agreed;
}

// Buckets aside: nothing of the set has changed when one of the steps fails.
Result<std::unique_ptr<Works>> Set::agree_on_works(const std::shared_ptr<const Fitting>& fitting,
                                                   Plan plan) {
  PENSTOCK_TRY(open_levels_of(plan));
  Result<std::unique_ptr<Works>> works = Works::make(*this, fitting, std::move(plan), gradients_,
                                                     works_ ? &works_->states() : nullptr);
  PENSTOCK_TRY(agree_on_needs(works));
  return works;
}

Status Set::refused(Status status) {
  refused_together_ = !status.ok();
  return status;
}

// Gives back what it replaces.
std::unique_ptr<Works> Set::install(std::unique_ptr<Works> works) {
  begin_measuring(*works);
  works_.swap(works);
  works_->lend_scratch(exec, device_exec);
  tags_per_step = works_->tags_per_step();
  return works;
}

}  // namespace penstock
