#include "tools/penstock/plan/simulate.hpp"

#include "core/plan/planner.hpp"
#include "core/plan/route.hpp"

#include <algorithm>
#include <numeric>
#include <random>

namespace penstock::command {

namespace {

constexpr int kDrawnSteps = 8;  // number of drawn steps if there is jitter

// The time that a rank computes for each element of a gradient, in ns.
struct Effort {
  double encode_ns, decode_ns;
};
Effort effort_of(const MethodCost& cost, const Cluster& cluster, uint32_t route, bool gathers) {
  const double ranks = cluster.ranks(), share = cluster.ranks_per_host;
  const auto decode = [&](double payloads) {
    return cost.decode_ns + (gathers ? payloads - 1 : 0) * cost.further_ns;
  };
  if (adds_in_hosts(route)) return {cost.encode_ns / share, decode(cluster.hosts) / share};
  // An owner decodes all ranks' payloads of its part, and every rank decodes all owners' payloads.
  if (encodes_for_owners(route) && gathers)
    return {cost.encode_ns * (1 + 1 / ranks), decode(ranks) / ranks + decode(1)};
  return {cost.encode_ns, decode(ranks)};
}

// The cost of an operation as a line through its times at two sizes, which are both sent in two
// steps.
planning::LinkEntry line_of(const Transports& transports, const Cluster& cluster,
                            uint32_t pattern) {
  constexpr double kFew = 1 << 16, kMany = 1 << 24;
  const double few = transports.operation(cluster, pattern, kFew).us;
  const double many = transports.operation(cluster, pattern, kMany).us;
  planning::LinkEntry line;
  line.beta_us_per_byte = (many - few) / (kMany - kFew);
  line.alpha_us = few - line.beta_us_per_byte * kFew;
  line.pattern = pattern;
  return line;
}

double share_of(const planning::Piece& piece, uint64_t numel) {
  return numel == 0 ? 1.0 : static_cast<double>(piece.numel) / static_cast<double>(numel);
}

}  // namespace

ReadyTimes ready_times(const ModelProfile& profile, const Cluster& cluster) {
  const std::vector<double>& given = profile.ready_us;
  if (cluster.jitter == 0) {
    ReadyTimes one{given};
    for (double& time : one.front()) time *= cluster.straggler;
    return one;
  }
  ReadyTimes steps(kDrawnSteps, std::vector<double>(given.size()));
  std::mt19937_64 source(cluster.seed);
  std::normal_distribution<double> normal(1, cluster.jitter);
  for (std::vector<double>& slowest : steps)
    for (uint32_t rank = 0; rank < cluster.ranks(); ++rank) {
      const double factor = rank == 0 ? cluster.straggler : 1;
      double now = 0;
      for (size_t i = given.size(); i-- > 0;) {
        const double takes = given[i] - (i + 1 < given.size() ? given[i + 1] : 0);
        now += takes * factor * std::max(0.0, normal(source));
        slowest[i] = std::max(slowest[i], now);
      }
    }
  return steps;
}

Result<Rehearsal> Rehearsal::make(const SchemeFile& file, const ModelProfile& profile,
                                  const Cluster& cluster) {
  Rehearsal made(file, profile);
  std::vector<const DeclaredGradient*> gradients;
  for (const DeclaredGradient& gradient : profile.gradients) gradients.push_back(&gradient);
  Registry& registry = file.plugins->registry();
  auto bound_scheme = BoundScheme::make(file.scheme, choose(file.scheme, gradients), registry,
                                        {.world = cluster.ranks(),
                                         .owners_per_host = cluster.ranks_per_host,
                                         .forward_waits = true,
                                         .connects_devices = !file.scheme.device_transport.empty(),
                                         .arena_limit_bytes = file.runtime.arena_limit_mb << 20});
  PENSTOCK_TRY(bound_scheme.status().with_context(file.name));
  made.bound_scheme_ = std::move(bound_scheme.value());
  made.transports_ = std::make_shared<const Transports>(made.bound_scheme_->scheme(), registry);
  return made;
}

void Rehearsal::add_links(const Cluster& cluster, planning::ModelEntries& entries) const {
  const planning::LinkEntry summed = line_of(*transports_, cluster, PENSTOCK_ALL_REDUCE);
  entries.links = {summed};
  entries.links.front().pattern = 0;
  if (!reads_lines(*bound_scheme_->scheduler())) return;
  entries.lines = {summed, line_of(*transports_, cluster, PENSTOCK_ALL_GATHER)};
  const CollectiveInstance* transport = transports_->world();
  if (transport != nullptr &&
      PENSTOCK_HAS_MEMBER(transport->table(), penstock_collective, volume)) {
    entries.volume = transport->table()->volume;
    entries.volume_context = transport->self();
  }
}

void Rehearsal::set_costs(const Cluster& cluster, const CostTable& costs,
                          planning::ModelEntries& entries, Prediction& outcome) const {
  const Scheme& scheme = bound_scheme_->scheme();
  for (size_t i = 0; i < entries.gradients.size(); ++i)
    for (size_t c = 0; c < entries.gradients[i].candidates.size(); ++c) {
      const BoundScheme::Option& option = bound_scheme_->options(i)[c];
      const InstanceConfig& compressor = *scheme.find(Kind::compressor, option.compressor->name());
      const InstanceConfig& memory = *scheme.find(Kind::memory, option.memory->name());
      MethodCost cost;
      if (const MethodCost* known = costs.find(compressor, memory))
        cost = *known;
      else
        outcome.without_cost.insert(method_name(compressor, memory));
      // A composite adds payloads, so the sum arrives as one payload.
      const bool composes = !scheme.transport.empty() && option.needs.planned.pairs > 0;
      const bool gathers = option.needs.combine == PENSTOCK_COMBINE_GATHER && !composes;
      const Effort effort = effort_of(cost, cluster, scheme.route, gathers);
      planning::CandidateEntry& candidate = entries.gradients[i].candidates[c];
      candidate.encode_fixed_us = cluster.straggler * cost.encode_us;
      candidate.encode_per_element_us = cluster.straggler * effort.encode_ns / 1000;
      candidate.decode_fixed_us = cluster.straggler * cost.decode_us;
      candidate.decode_per_element_us = cluster.straggler * effort.decode_ns / 1000;
    }
}

planning::ModelEntries Rehearsal::entries(const Cluster& cluster, const CostTable& costs,
                                          Prediction& outcome) const {
  planning::ModelEntries entries = bound_scheme_->model();
  for (size_t i = 0; i < entries.gradients.size(); ++i)
    entries.gradients[i].forward_us = cluster.straggler * profile_->forward_us[i];
  entries.forward_us = cluster.straggler * profile_->whole_forward_us;
  entries.hosts = cluster.hosts;
  entries.ranks_per_host = cluster.ranks_per_host;
  entries.flags = PENSTOCK_MODEL_FORWARD_WAITS | PENSTOCK_MODEL_MEASURED;
  add_links(cluster, entries);
  set_costs(cluster, costs, entries, outcome);
  return entries;
}

// The bytes that a rank hands over for a bucket, by kind of exchange, and the number of rounds.
PlannedBytes Rehearsal::bytes_of(const planning::Bucket& bucket, uint32_t& rounds) const {
  PlannedBytes total;
  rounds = 1;
  for (const planning::Piece& piece : bucket.pieces) {
    const DeclaredGradient& gradient = profile_->gradients[piece.gradient];
    const ItemNeeds& needs = bound_scheme_->options(piece.gradient)[piece.choice].needs;
    const std::vector<uint64_t>& phases = needs.phase_bytes;
    const double all = std::accumulate(phases.begin(), phases.end(), 0.0);
    const double of_phase =
        all > 0 ? static_cast<double>(phases[bucket.phase] * phases.size()) / all : 0;
    const double share = share_of(piece, gradient.numel);
    PlannedBytes bytes = needs.planned.times(of_phase * share);
    if (encodes_for_owners(bucket.route)) {
      bytes.owned = bytes.spread = bytes.gathered + bytes.coded_pairs;
      bytes.gathered = bytes.pairs = bytes.coded_pairs = 0;
    }
    if (adds_in_hosts(bucket.route)) bytes.local = static_cast<double>(gradient.bytes()) * share;
    total += bytes;
    rounds = std::max(rounds, needs.compressor_facts.n_rounds);
  }
  return total;
}

Transports::Legs Rehearsal::exchange(const Cluster& cluster, const planning::Bucket& bucket) const {
  uint32_t rounds = 1;
  const PlannedBytes bytes = bytes_of(bucket, rounds);
  return transports_->exchange(cluster, bucket.route, bytes, rounds);
}

planning::OwnedModel Rehearsal::at(const std::vector<double>& ready_us, const Cluster& cluster,
                                   planning::ModelEntries entries) const {
  // Backward may continue after its last gradient, which is the first gradient of forward.
  const double rest_us = cluster.straggler * (profile_->backward_us - profile_->ready_us.front());
  entries.backward_us = *std::max_element(ready_us.begin(), ready_us.end()) + rest_us;
  for (size_t i = 0; i < ready_us.size(); ++i) entries.gradients[i].ready_us = ready_us[i];
  return planning::OwnedModel(std::move(entries));
}

Status Rehearsal::plan(const penstock_model& model, Prediction& outcome) const {
  auto plan = make_plan(*bound_scheme_->scheduler(), model);
  PENSTOCK_TRY(plan.status().with_context(file_->name));
  outcome.plan = std::move(plan.value());
  outcome.explanation = outcome.plan.explanation;
  return check_plan(outcome.plan, bound_scheme_->plan_facts(), bound_scheme_->scheduler()->name())
      .with_context(file_->name);
}

void Rehearsal::take_steps(const Cluster& cluster, const planning::ModelEntries& entries,
                           const ReadyTimes& ready, Prediction& outcome) const {
  std::vector<Transports::Legs> legs;
  for (const planning::Bucket& bucket : outcome.plan.buckets)
    legs.push_back(exchange(cluster, bucket));
  const planning::ExchangeOf exchange_of = [&](uint64_t bucket) {
    return planning::ExchangeTimes{legs[bucket].backward.us, legs[bucket].forward.us};
  };
  outcome.step_us = outcome.exposed_us = outcome.bytes = 0;
  outcome.encode_us = outcome.exchange_us = outcome.decode_us = 0;
  const double weight = 1.0 / static_cast<double>(outcome.plan.period * ready.size());
  for (const std::vector<double>& ready_us : ready) {
    const planning::OwnedModel model = at(ready_us, cluster, entries);
    for (uint32_t phase = 0; phase < outcome.plan.period; ++phase) {
      planning::Forecast times =
          planning::forecast(outcome.plan, model.model(), phase, exchange_of);
      outcome.step_us += weight * (entries.forward_us + times.backward_end + times.exposed_us);
      outcome.exposed_us += weight * times.exposed_us;
      outcome.encode_us += weight * times.encode_us;
      outcome.exchange_us += weight * times.exchange_us;
      outcome.decode_us += weight * times.decode_us;
      if (phase == 0 && &ready_us == &ready.front()) outcome.timeline = std::move(times);
    }
  }
  for (const Transports::Legs& each : legs)
    outcome.bytes += (each.backward.bytes + each.forward.bytes) / outcome.plan.period;
}

Result<bool> Rehearsal::wants_new_plan(uint64_t look, const Prediction& outcome) const {
  SchedulerInstance& scheduler = *bound_scheme_->scheduler();
  const uint32_t every = scheduler.traits().observe_every;
  const uint32_t chooses = PENSTOCK_SCHEDULER_CHOOSES | PENSTOCK_SCHEDULER_MEASURES;
  if ((scheduler.traits().flags & chooses) != chooses || every == 0 ||
      !PENSTOCK_HAS_MEMBER(scheduler.table(), penstock_scheduler, observe))
    return false;
  penstock_measurement measurement{};
  measurement.struct_size = sizeof measurement;
  measurement.step = (look + 1) * every;
  measurement.n_steps = every;
  measurement.step_us = outcome.step_us;
  measurement.exposed_us = outcome.exposed_us;
  uint32_t decision = PENSTOCK_KEEP_PLAN;
  PENSTOCK_TRY(from_c(scheduler.table()->observe(scheduler.self(), &measurement, &decision))
                   .with_context(file_->name));
  return decision == PENSTOCK_MAKE_NEW_PLAN;
}

// Predicts a step. A scheduler that chooses among candidates by trial receives the predicted times
// until it keeps its plan.
Result<Prediction> Rehearsal::run(const Cluster& cluster, const CostTable& costs,
                                  const ReadyTimes& ready) const {
  constexpr uint64_t kMostLooks = 256, kAtRest = 4;
  Prediction outcome;
  const planning::ModelEntries entries = this->entries(cluster, costs, outcome);
  const planning::OwnedModel planned = at(ready.front(), cluster, entries);
  PENSTOCK_TRY(plan(planned.model(), outcome));
  take_steps(cluster, entries, ready, outcome);
  for (uint64_t look = 0, kept = 0; look < kMostLooks && kept < kAtRest; ++look) {
    const auto wants = wants_new_plan(look, outcome);
    PENSTOCK_TRY(wants.status());
    kept = wants.value() ? 0 : kept + 1;
    if (kept > 0) continue;
    PENSTOCK_TRY(plan(planned.model(), outcome));
    take_steps(cluster, entries, ready, outcome);
  }
  outcome.forward_us = entries.forward_us;
  outcome.compresses = false;
  for (size_t i = 0; i < profile_->gradients.size(); ++i)
    for (const BoundScheme::Option& option : bound_scheme_->options(i)) {
      outcome.compresses = outcome.compresses || !option.is_lossless();
      outcome.open = outcome.open || option.needs.planned.open;
    }
  return outcome;
}

}  // namespace penstock::command
