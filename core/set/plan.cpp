// Making and changing the plan of a set: who compresses what, in which buckets, over which
// channels.

#include "core/base/hash.hpp"
#include "core/bucket/engine.hpp"
#include "core/bucket/layout.hpp"
#include "core/bucket/needs_text.hpp"
#include "core/fit/item.hpp"
#include "core/set/set.hpp"

#include <penstock/validate.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

namespace penstock {

namespace {

// Buckets are made for each phase: methods that alternate in two or three are what there is.
constexpr uint32_t kMostPhasesOfSet = 256;

}  // namespace

// ---- instances ----

PluginCall Set::planning_call(std::string_view kind, std::string_view plugin,
                              std::string_view stage, std::string_view where) const {
  return PluginCall(&services_.activity.planning, kind, plugin, stage, where, name, step.index);
}

// Instances whose plugin and options are the same as before are kept.
template <>
Result<CompressorInstance*> Set::instance<penstock_compressor>(const std::string& instance_name) {
  auto& slot = compressors_[{Kind::compressor, instance_name}];
  if (slot == nullptr) {
    const auto noted = planning_call("compressor", instance_name, "create");
    PENSTOCK_ASSIGN(slot,
                    make_instance<penstock_compressor>(scheme_, instance_name, services_.registry));
  }
  return slot.get();
}
template <>
Result<MemoryInstance*> Set::instance<penstock_memory>(const std::string& instance_name) {
  auto& slot = memories_[{Kind::memory, instance_name}];
  if (slot == nullptr) {
    const auto noted = planning_call("memory", instance_name, "create");
    PENSTOCK_ASSIGN(slot,
                    make_instance<penstock_memory>(scheme_, instance_name, services_.registry));
  }
  return slot.get();
}

Status Set::adopt_scheme(uint64_t at) {
  scheme_ = config_.at_step(at);
  compressors_.clear();
  memories_.clear();
  const auto noted = planning_call("scheduler", scheme_.scheduler, "create");
  PENSTOCK_ASSIGN(scheduler_, make_instance<penstock_scheduler>(scheme_, scheme_.scheduler,
                                                                services_.registry));
  settle_route(scheme_, *scheduler_);
  return {};
}

Status Set::open_channels() {
  CollectiveInstance& transport = services_.transport;
  PENSTOCK_TRY(check_opened(scheme_, transport, services_.registry));
  PENSTOCK_ASSIGN(channel, services_.run.open_channel("set " + name, group_, transport, nullptr));
  open_channels_.push_back(channel);
  if (scheme_.transport.empty()) {
    if (scheme_.collective != transport.name())
      return failed_precondition(
          "the scheme names the collective '{}', but the run joined over '{}': one transport per "
          "run",
          scheme_.collective, transport.name());
    return {};
  }
  PENSTOCK_ASSIGN(composite_, make_instance<penstock_collective>(scheme_, scheme_.collective,
                                                                 services_.registry));
  composite_id = composite_->plugin()->record.id;
  PENSTOCK_ASSIGN(Channel * base,
                  services_.run.open_channel("set " + name + " base", group_, transport, nullptr));
  open_channels_.push_back(base);
  PENSTOCK_ASSIGN(composite, services_.run.open_channel("set " + name + " " + scheme_.collective,
                                                        group_, *composite_, base));
  open_channels_.push_back(composite);
  return {};
}

// ---- what each gradient needs ----

Status Set::examine_gradients() {
  options_.clear();
  period_ = 1;
  for (const auto& gradient : gradients_) {
    auto& options = options_.emplace_back();
    const GradientFacts facts{gradient->name, gradient->shape.size(), gradient->numel,
                              gradient->dtype};
    Choice choice = scheme_.choose(facts);
    if (choice.candidates.empty()) choice.candidates.push_back(choice.compressor);
    for (const std::string& compressor : choice.candidates) {
      PENSTOCK_ASSIGN(Option option, examine(*gradient, compressor, choice.memory));
      const auto phases = static_cast<uint32_t>(option.candidate.phase_bytes.size());
      if (std::lcm(period_, phases) > kMostPhasesOfSet)
        return failed_precondition(
            "compressor \"{}\" (for {} and others) has {} phases and those before it {}: together "
            "more than {}; use compressors whose numbers of phases divide each other",
            compressor, gradient->name, phases, period_, kMostPhasesOfSet);
      period_ = std::lcm(period_, phases);
      options.push_back(std::move(option));
    }
  }
  for (auto& options : options_)
    for (Option& option : options) {
      std::vector<uint64_t>& bytes = option.candidate.phase_bytes;
      for (size_t p = bytes.size(); p < period_; ++p) bytes.push_back(bytes[p % bytes.size()]);
    }
  return {};
}

Result<Set::Option> Set::examine(const Gradient& gradient, const std::string& compressor,
                                 const std::string& memory) {
  Option option;
  PENSTOCK_ASSIGN(option.compressor, instance<penstock_compressor>(compressor));
  PENSTOCK_ASSIGN(option.memory, instance<penstock_memory>(memory));
  TemplateItem item(gradient, {gradient.index, 0, gradient.numel, 0});
  PENSTOCK_ASSIGN(ItemNeeds needs, plan_template(item, *option.compressor, *option.memory, world,
                                                 &services_.activity.planning, name));
  option.compressor_facts = needs.compressor_facts;
  option.memory_facts = needs.memory_facts;
  CandidateFacts& candidate = option.candidate;
  candidate.compressor = compressor;
  candidate.phase_bytes = needs.phase_bytes;
  candidate.part_alignment = needs.part_alignment;
  candidate.combine = needs.combine;
  candidate.n_rounds = needs.compressor_facts.n_rounds;
  option.planned = needs.planned;
  return option;
}

// All stages before the first step: what does not fit must not show in the middle of a run.
Status Set::check_stages() {
  PENSTOCK_TRY(examine_gradients());
  PENSTOCK_ASSIGN(const FitAdvice advice, check_fit_of_set());
  warn(advice);
  std::vector<StageTraffic> traffic{planned_traffic(0)};
  bool changed = false;
  for (uint64_t stage : config_.stages()) {
    if (stage == 0) continue;
    changed = true;
    const auto fits = [&]() -> Status {
      PENSTOCK_TRY(adopt_scheme(stage));
      PENSTOCK_TRY(examine_gradients());
      return check_fit_of_set().status();  // its warnings come when it is in force
    };
    PENSTOCK_TRY(fits().with_context(fmt::format("from step {} on", stage)));
    traffic.push_back(planned_traffic(stage));
  }
  warn(traffic);
  if (!changed) return {};
  PENSTOCK_TRY(adopt_scheme(0));
  return examine_gradients();
}

void Set::warn(const FitAdvice& advice) {
  if (rank != 0) return;
  for (const std::string& warning : advice.warnings)
    services_.log.write(LogLevel::warning, "fit", warning);
}

// The flag stays only where it fits: a user who mends it goes on.
Status Set::optimizer_momentum() {
  const uint32_t before = frontend_flags_;
  frontend_flags_ |= PENSTOCK_SET_OPTIMIZER_MOMENTUM;
  const Status status = check_fit_of_set().status();
  if (!status.ok()) frontend_flags_ = before;
  return status;
}

Result<FitAdvice> Set::check_fit_of_set() {
  FitInput input;
  for (const auto& options : options_)
    input.most_candidates = std::max(input.most_candidates, options.size());
  for (size_t i = 0; i < options_.size(); ++i)
    for (const Option& option : options_[i])
      add_group(input, {gradients_[i]->name, option.compressor_facts, option.memory_facts,
                        PENSTOCK_DEVICE_CPU});
  CollectiveInstance& transport = services_.transport;
  input.transport = collective_facts(transport.name(), transport.traits());
  input.collective =
      composite_ ? collective_facts(composite_->name(), composite_->traits()) : input.transport;
  input.has_transport = !scheme_.transport.empty();
  input.scheduler = scheduler_facts(scheduler_->name(), scheduler_->traits());
  input.frontend = frontend_flags_;
  input.route = scheme_.route;
  input.deterministic = services_.config.runtime().deterministic;
  input.world = world;
  input.arena_limit_bytes = services_.config.runtime().arena_limit_mb << 20;
  for (const auto& options : options_)
    if (!options.empty()) {
      const uint64_t most = *std::max_element(options[0].candidate.phase_bytes.begin(),
                                              options[0].candidate.phase_bytes.end());
      const bool gathered = options[0].candidate.combine == PENSTOCK_COMBINE_GATHER;
      const auto both = sdk::checked_product(most, gathered ? uint64_t{1} + world : 2);
      const auto all = both ? sdk::checked_sum(input.arena_bytes, *both) : std::nullopt;
      input.arena_bytes = all.value_or(~uint64_t{0});
    }
  return check_fit(input);
}

// ---- the plan ----

ModelFacts Set::model_facts() const {
  ModelFacts model;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    const Gradient& gradient = *gradients_[i];
    GradientModelFacts facts;
    facts.name = gradient.name;
    facts.shape = gradient.shape;
    facts.numel = gradient.numel;
    facts.dtype = gradient.dtype;
    facts.given_bucket = gradient.given_bucket;
    for (const Option& option : options_[i]) {
      CandidateFacts candidate = option.candidate;
      if (const CallLines* lines = measured_.lines(candidate.compressor)) {
        candidate.encode_fixed_us = lines->encode.fixed();
        candidate.encode_per_element_us = lines->encode.per_element();
        candidate.decode_fixed_us = lines->decode.fixed();
        candidate.decode_per_element_us = lines->decode.per_element();
      }
      facts.candidates.push_back(std::move(candidate));
    }
    if (i < ready_us_.size()) facts.ready_us = ready_us_[i];
    model.gradients.push_back(std::move(facts));
  }
  // Backward reaches the parameters in the reverse of their registration, until measured otherwise.
  model.order.resize(gradients_.size());
  std::iota(model.order.rbegin(), model.order.rend(), uint64_t{0});
  if (!ready_us_.empty())
    std::stable_sort(model.order.begin(), model.order.end(),
                     [&](uint64_t a, uint64_t b) { return ready_us_[a] < ready_us_[b]; });
  const penstock_topology topology = services_.topology;
  model.links = links_;
  model.backward_us = backward_us_;
  model.world = world;
  model.hosts = topology.cross_size;
  model.ranks_per_host = topology.local_size;
  model.period = period_;
  model.route = scheme_.route;
  if ((frontend_flags_ & PENSTOCK_SET_DEFERRED_UPDATE) != 0)
    model.flags |= PENSTOCK_MODEL_FORWARD_WAITS;
  if ((frontend_flags_ & PENSTOCK_SET_GIVEN_BUCKETS) != 0)
    model.flags |= PENSTOCK_MODEL_GIVEN_BUCKETS;
  if (!ready_us_.empty()) model.flags |= PENSTOCK_MODEL_MEASURED;
  return model;
}

PlanFacts Set::plan_facts() const {
  PlanFacts facts;
  facts.period = period_;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    facts.numel.push_back(gradients_[i]->numel);
    facts.names.push_back(gradients_[i]->name);
    facts.n_candidates.push_back(static_cast<uint32_t>(options_[i].size()));
    auto& alignment = facts.part_alignment.emplace_back();
    for (const Option& option : options_[i]) alignment.push_back(option.candidate.part_alignment);
  }
  return facts;
}

// Rank 0 plans; its bytes go to the others, who check them.
Result<Plan> Set::agree_on_plan() {
  const Stage stage(timeline, "negotiate", "application", step.index);
  std::string mine;
  Status status;
  if (rank == 0) {
    const auto noted = planning_call("scheduler", scheduler_->name(), "plan");
    auto plan = make_plan(*scheduler_, model_facts());
    status = plan.status();
    if (plan.ok()) mine = plan.value().to_bytes();
  }
  // An empty text tells the others that rank 0 could not plan.
  PENSTOCK_ASSIGN(auto texts, services_.control.gather(
                                  fmt::format("plan of set {} at step {}", name, step.index), mine,
                                  ranks_, meeting_us_));
  PENSTOCK_TRY(status);
  if (texts.front().empty())
    return peer_failed("set '{}': rank {} could not make a plan; its error says why", name,
                       ranks_.front());
  PENSTOCK_ASSIGN(Plan plan, Plan::from_bytes(texts.front()));
  PENSTOCK_TRY(check_plan(plan, plan_facts(), scheduler_->name()));
  return plan;
}

// Ranks of one plan may still have asked their plugins to another end: a rank that sends nothing,
// or another number of bytes, would leave the others with wrong sums. `buckets` may be the error of
// this rank, which the others then read.
Status Set::agree_on_needs(const Result<Buckets>& buckets) {
  const std::string text = buckets.ok()
                               ? needs_text(buckets.value())
                               : fmt::format("cannot be planned: {}\n", buckets.status().message());
  const std::string topic = fmt::format("needs of set {} at step {}", name, step.index);
  // The texts are long and nearly always equal, so a hash goes first.
  auto hashes =
      services_.control.gather(topic + ", hashed", hash_text(hash64(text)), ranks_, meeting_us_);
  const auto is_mine = [&](const std::string& hash) { return hash == hash_text(hash64(text)); };
  Status agreed = hashes.status();
  if (hashes.ok() && !std::all_of(hashes->begin(), hashes->end(), is_mine))
    agreed = services_.control.agree(topic, text, ranks_, meeting_us_);
  return buckets.ok() ? agreed : buckets.status();
}

Result<Set::Buckets> Set::make_buckets(const Plan& plan) {
  // Gradients that a phase leaves out are compensated in it: they share a bucket that sends
  // nothing.
  std::vector<BucketPlan> all = plan.buckets;
  for (uint32_t phase = 0; phase < period_; ++phase) {
    std::vector<bool> present(gradients_.size());
    for (const BucketPlan& bucket : plan.buckets)
      if (bucket.phase == phase)
        for (const PiecePlan& piece : bucket.pieces) present[piece.gradient] = true;
    BucketPlan rest;
    rest.phase = phase;
    for (size_t i = 0; i < gradients_.size(); ++i)
      if (!present[i]) rest.pieces.push_back({i, 0, gradients_[i]->numel, 0});
    if (!rest.pieces.empty()) all.push_back(std::move(rest));
  }
  Buckets buckets(period_);
  store_.begin_plan();
  for (const BucketPlan& bucket : all) {
    auto& phase = buckets[bucket.phase];
    PENSTOCK_ASSIGN(auto made, make_bucket(bucket, static_cast<uint32_t>(phase.size())));
    phase.push_back(std::move(made));
  }
  store_.end_plan();
  return buckets;
}

void Set::install(Plan plan, Buckets buckets) {
  buckets_ = std::move(buckets);
  plan_ = std::move(plan);
  where_.assign(period_, std::vector<std::vector<BucketRun*>>(gradients_.size()));
  defers_ = false;
  for (uint32_t phase = 0; phase < period_; ++phase)
    for (auto& bucket : buckets_[phase]) {
      defers_ = defers_ || (bucket->splits() && bucket->n_rounds > 0);
      for (const PiecePlan& piece : bucket->plan.pieces) {
        auto& in = where_[phase][piece.gradient];
        if (!in.empty() && in.back() == bucket.get()) continue;
        in.push_back(bucket.get());
        ++bucket->n_gradients;
      }
    }
  exec.scratch = scratch.data();
  exec.scratch_bytes = scratch.bytes();
  number_messages(plan_);
  measured_.begin(gradients_.size(), buckets_.empty() ? 0 : buckets_[0].size());
}

// Positions of messages in a phase: as the plan lists them, else bucket after bucket, round after
// round.
void Set::number_messages(const Plan& plan) {
  messages_per_phase_.assign(period_, 0);
  std::map<std::array<uint32_t, 4>, size_t> places;
  for (size_t i = 0; i < plan.sequence.size(); ++i) {
    const MessagePlan& listed = plan.sequence[i];
    places.try_emplace({listed.phase, listed.bucket, listed.leg, listed.round}, i);
  }
  tags_per_step = 1;
  for (uint32_t phase = 0; phase < period_; ++phase) {
    std::vector<std::pair<size_t, MessageRun*>> listed;
    for (auto& bucket : buckets_[phase]) {
      const auto place = [&](uint32_t leg, uint32_t round) {
        const auto found = places.find({phase, bucket->number, leg, round});
        return found != places.end() ? found->second : plan.sequence.size();
      };
      if (bucket->prologue) listed.emplace_back(place(0, 0), bucket->prologue.get());
      for (uint32_t round = 0; round < bucket->messages.size(); ++round)
        for (auto& message : bucket->messages[round])
          listed.emplace_back(place(message->kind == MessageRun::Kind::collect ? 1 : 0, round),
                              message.get());
    }
    std::stable_sort(listed.begin(), listed.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [position, message] : listed) message->order = messages_per_phase_[phase]++;
    tags_per_step = std::max(tags_per_step, messages_per_phase_[phase]);
  }
}

}  // namespace penstock
