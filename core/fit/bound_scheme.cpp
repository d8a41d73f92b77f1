#include "core/fit/bound_scheme.hpp"

#include "core/config/defaults.hpp"
#include "core/fit/resolve.hpp"
#include "core/fit/route_rules.hpp"

#include <penstock/validate.hpp>

#include <algorithm>
#include <numeric>

namespace penstock {
namespace {

// Buckets are made for each phase. Known methods alternate between two or three phases.
constexpr uint32_t kMostPhases = 256;

}  // namespace

std::vector<ChosenGradient> choose(const Scheme& scheme,
                                   const std::vector<const DeclaredGradient*>& gradients) {
  std::vector<ChosenGradient> chosen;
  for (const DeclaredGradient* gradient : gradients)
    chosen.push_back({gradient, scheme.choose(gradient->facts())});
  return chosen;
}

Result<std::shared_ptr<const BoundScheme>> BoundScheme::make(Scheme scheme,
                                                             std::vector<ChosenGradient> gradients,
                                                             Registry& registry,
                                                             const BindingSite& site) {
  const std::shared_ptr<BoundScheme> made(new BoundScheme);
  made->scheme_ = std::move(scheme);
  made->gradients_ = std::move(gradients);
  made->world_ = site.world;
  made->forward_waits_ = site.forward_waits;
  made->buckets_are_given_ = site.buckets_are_given;
  made->results_at_owners_ = site.results_at_owners;
  if (const std::string& name = made->scheme_.scheduler; !name.empty()) {
    const PluginCall noted(site.calls, "scheduler", name, "create", {}, site.set);
    PENSTOCK_ASSIGN(made->scheduler_,
                    make_instance<penstock_scheduler>(made->scheme_, name, registry));
    settle_route(made->scheme_, *made->scheduler_);
  }
  PENSTOCK_TRY(made->take_route());
  PENSTOCK_TRY(made->examine(registry, site));
  made->share_out_gradients(site.owners_per_host);
  made->take_ranks_at_once(site.arena_limit_bytes);
  return std::shared_ptr<const BoundScheme>(made);
}

// If results stay at owners, the route must be `shard`: no other route brings them there.
Status BoundScheme::take_route() {
  if (!results_at_owners_) return {};
  const auto named = scheme_.where.find("route");
  if (named != scheme_.where.end() && !encodes_for_owners(scheme_.route))
    return failed_precondition(
        "each result of this set is for one rank only (RESULT_AT_OWNER), which is the first half "
        "of route \"shard\", but the scheme names route \"{}\"; remove that key",
        route_name(scheme_.route));
  scheme_.route = PENSTOCK_ROUTE_SHARD;
  if (named == scheme_.where.end()) scheme_.where["route"] = {};
  return {};
}

template <typename Table>
Result<Instance<Table>*> BoundScheme::instance(const std::string& name, Registry& registry,
                                               const BindingSite& site) {
  std::unique_ptr<Instance<Table>>* slot;
  if constexpr (std::is_same_v<Table, penstock_compressor>)
    slot = &compressors_[name];
  else
    slot = &memories_[name];
  if (*slot == nullptr) {
    const PluginCall noted(site.calls, kind_name(TableTraits<Table>::kKind), name, "create", {},
                           site.set);
    PENSTOCK_ASSIGN(*slot, make_instance<Table>(scheme_, name, registry));
  }
  return slot->get();
}

// An owner that keeps the result needs no memory. But a sender's memory must have no momentum: at a
// switch the rest of a momentum is added to results, which senders do not have.
Status BoundScheme::check_kept_by_senders(const DeclaredGradient& gradient, const Choice& choice,
                                          const Option& option) {
  const MemoryFacts& memory = option.needs.memory_facts;
  if (!memory.owns_momentum && !memory.finishes) return {};
  return failed_precondition(
      "memory \"{}\" of {} {}, but each result of this set is for one rank only (RESULT_AT_OWNER); "
      "use another memory, such as \"{}\"",
      choice.memory, gradient.name,
      memory.finishes ? "ends a step with the result on every rank" : "applies a momentum",
      defaults::kMemory);
}

// Makes the memory in which an owner keeps the error of its sums, and takes its facts.
Status BoundScheme::find_owner_memory(const DeclaredGradient& gradient, const Choice& choice,
                                      Option& option, Registry& registry, const BindingSite& site) {
  if (results_at_owners_) return check_kept_by_senders(gradient, choice, option);
  const bool is_its_own = scheme_.owner_memory.empty();
  const std::string& name = is_its_own ? choice.memory : scheme_.owner_memory;
  PENSTOCK_ASSIGN(option.owner_memory, instance<penstock_memory>(name, registry, site));
  option.owner_memory_facts = option.needs.memory_facts;
  if (is_its_own) return {};
  TemplateItem item(gradient, {0, 0, gradient.numel, 0});
  PENSTOCK_ASSIGN(
      const ItemNeeds needs,
      plan_template(item, *option.compressor, *option.owner_memory, site.world,
                    takes_any_payload(scheme_, site.connects_devices), site.calls, site.set));
  option.owner_memory_facts = needs.memory_facts;
  // Both memories work in one dtype.
  if (needs.dtype == PENSTOCK_FLOAT32) option.needs.dtype = PENSTOCK_FLOAT32;
  return {};
}

// Divides the gradients among the owners. The cuts suit all candidates, so that ownership does not
// depend on the chosen candidates.
void BoundScheme::share_out_gradients(uint32_t owners_per_host) {
  std::vector<OwnableGradient> all;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    const DeclaredGradient& gradient = *gradients_[i].gradient;
    OwnableGradient& ownable = all.emplace_back();
    ownable.numel = gradient.numel;
    if (gradient.shape.size() >= 2 && gradient.numel > 0)
      ownable.cols = gradient.numel / static_cast<uint64_t>(gradient.shape[0]);
    ownable.alignment = 1;
    for (const Option& option : options_[i]) {
      const uint64_t alignment = option.needs.part_alignment;
      ownable.alignment = alignment == 0 ? 0 : std::lcm(ownable.alignment, alignment);
      if (ownable.alignment == 0) break;
    }
  }
  owned_on_host_ = share_out(all, owners_per_host);
  owned_in_world_ = share_out(all, world_);
  if (!results_at_owners_) return;
  for (size_t i = 0; i < gradients_.size(); ++i)
    owned_in_world_[i] = {{0, all[i].numel, gradients_[i].gradient->owner}};
}

Status BoundScheme::examine(Registry& registry, const BindingSite& site) {
  for (const auto& [gradient, choice] : gradients_) {
    auto& options = options_.emplace_back();
    std::vector<std::string> names = choice.candidates;
    if (names.empty()) names.push_back(choice.compressor);
    for (const std::string& name : names) {
      Option& option = options.emplace_back();
      PENSTOCK_ASSIGN(option.compressor, instance<penstock_compressor>(name, registry, site));
      PENSTOCK_ASSIGN(option.memory, instance<penstock_memory>(choice.memory, registry, site));
      TemplateItem item(*gradient, {0, 0, gradient->numel, 0});
      PENSTOCK_ASSIGN(
          option.needs,
          plan_template(item, *option.compressor, *option.memory, site.world,
                        takes_any_payload(scheme_, site.connects_devices), site.calls, site.set));
      PENSTOCK_TRY(find_owner_memory(*gradient, choice, option, registry, site));
      const auto phases = static_cast<uint32_t>(option.needs.phase_bytes.size());
      if (std::lcm(period_, phases) > kMostPhases)
        return failed_precondition(
            "compressor \"{}\" (for {} and others) has {} phases and those before it {}: together "
            "more than {}; use compressors whose numbers of phases divide each other",
            name, gradient->name, phases, period_, kMostPhases);
      period_ = std::lcm(period_, phases);
    }
  }
  for (auto& options : options_)
    for (Option& option : options) {
      for (auto* bytes : {&option.needs.phase_bytes, &option.needs.coded_phase_bytes})
        for (size_t p = bytes->size(); p < period_; ++p)
          bytes->push_back((*bytes)[p % bytes->size()]);
    }
  return {};
}

namespace {

// As far as they fit in 64 bits.
uint64_t sum_of(uint64_t a, uint64_t b) {
  return sdk::checked_sum(a, b).value_or(~uint64_t{0});
}
uint64_t product_of(uint64_t a, uint64_t b) {
  return sdk::checked_product(a, b).value_or(~uint64_t{0});
}

}  // namespace

uint64_t BoundScheme::Arena::with(uint64_t ranks) const {
  return sum_of(fixed, product_of(of_one_rank, ranks));
}

// A composite receives in memory of its own, and payloads on a device come in one gather.
BoundScheme::Arena BoundScheme::arena() const {
  Arena arena;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    const ItemNeeds& needs = options_[i].front().needs;
    const bool gathered = needs.combine == PENSTOCK_COMBINE_GATHER;
    const bool in_slices = gathered && needs.decodes_slices && scheme_.transport.empty() &&
                           gradients_[i].gradient->lies_on.is_cpu();
    if (in_slices) arena.of_one_rank = sum_of(arena.of_one_rank, needs.most_room);
    const uint64_t payloads = in_slices ? 1 : gathered ? uint64_t{1} + world_ : 2;
    arena.fixed = sum_of(arena.fixed, product_of(needs.most_room, payloads));
  }
  return arena;
}

// Takes as few slices as fit, all of nearly the same size.
void BoundScheme::take_ranks_at_once(uint64_t limit_bytes) {
  ranks_at_once_ = world_;
  const Arena arena = this->arena();
  if (limit_bytes == 0 || arena.of_one_rank == 0 || arena.with(world_) <= limit_bytes) return;
  const uint64_t room = limit_bytes - std::min(limit_bytes, arena.fixed);
  const uint64_t most = std::clamp<uint64_t>(room / arena.of_one_rank, 1, world_);
  const uint64_t n_slices = (world_ + most - 1) / most;
  ranks_at_once_ = static_cast<uint32_t>((world_ + n_slices - 1) / n_slices);
}

void BoundScheme::describe(FitInput& input) const {
  for (size_t i = 0; i < gradients_.size(); ++i) {
    input.most_candidates = std::max(input.most_candidates, options_[i].size());
    for (const Option& option : options_[i])
      add_group(input, {gradients_[i].gradient->name, option.needs.compressor_facts,
                        option.needs.memory_facts, option.owner_memory_facts, PENSTOCK_DEVICE_CPU});
  }
  if (scheduler_ != nullptr) {
    input.scheduler = scheduler_facts(scheduler_->name(), scheduler_->traits());
    input.route = scheme_.route;
  }
  input.has_transport = !scheme_.transport.empty();
  input.names_owner_memory = !scheme_.owner_memory.empty();
  input.applies_previous = scheme_.applies_previous();
  input.world = world_;
  if (input.arena_limit_bytes == 0) return;
  input.arena_bytes = arena().with(ranks_at_once_);
  input.arena_fixed_bytes = arena().fixed;
}

uint64_t BoundScheme::routes_of(const std::string& gradient, const Option& option) {
  const FitGroup group{gradient, option.needs.compressor_facts, option.needs.memory_facts,
                       option.owner_memory_facts, PENSTOCK_DEVICE_CPU};
  uint64_t routes = 0;
  for (const planning::Route& route : kRoutes)
    if (check_route_of(route.number, group).ok()) routes |= uint64_t{1} << route.number;
  return routes;
}

PlanFacts BoundScheme::plan_facts() const {
  PlanFacts facts;
  facts.period = period_;
  facts.forward_waits = forward_waits_;
  if (scheduler_ != nullptr) facts.offered = scheduler_->traits().routes;
  facts.buckets_are_given = buckets_are_given_;
  if (scheme_.where.count("route") != 0) facts.route = scheme_.route;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    facts.numel.push_back(gradients_[i].gradient->numel);
    facts.names.push_back(gradients_[i].gradient->name);
    facts.given_buckets.push_back(gradients_[i].gradient->given_bucket);
    auto& candidates = facts.candidates.emplace_back();
    for (const Option& option : options_[i]) {
      PlanFacts::Candidate& candidate = candidates.emplace_back();
      candidate.part_alignment = option.needs.part_alignment;
      candidate.keeps = option.needs.memory_facts.keeps;
      candidate.routes = routes_of(gradients_[i].gradient->name, option);
    }
  }
  return facts;
}

planning::ModelEntries BoundScheme::model() const {
  planning::ModelEntries model;
  model.world = world_;
  model.period = period_;
  if (scheme_.where.count("route") != 0) model.route = scheme_.route;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    const DeclaredGradient& gradient = *gradients_[i].gradient;
    planning::GradientEntry& entry = model.gradients.emplace_back();
    entry.name = gradient.name;
    entry.shape = gradient.shape;
    entry.bytes = gradient.bytes();
    entry.dtype = gradient.dtype;
    entry.given_bucket = gradient.given_bucket;
    for (const Option& option : options_[i]) {
      planning::CandidateEntry& candidate = entry.candidates.emplace_back();
      candidate.compressor = option.compressor->name();
      const bool on_composite = !scheme_.transport.empty();
      candidate.phase_bytes =
          on_composite ? option.needs.phase_bytes : option.needs.coded_phase_bytes;
      candidate.part_alignment = option.needs.part_alignment;
      candidate.combine = option.needs.combine;
      candidate.n_rounds = option.needs.compressor_facts.n_rounds;
      candidate.routes = routes_of(gradient.name, option);
    }
  }
  return model;
}

StageTraffic BoundScheme::traffic(const Carriers& by, uint64_t from_step) const {
  StageTraffic stage;
  stage.from_step = from_step;
  for (const ChosenGradient& chosen : gradients_)
    stage.gradient_bytes += double(chosen.gradient->bytes());
  for (const auto& options : options_) {
    const ItemNeeds& needs =
        std::min_element(options.begin(), options.end(), [&](const Option& a, const Option& b) {
          return by.moved(a.needs.planned, world_) < by.moved(b.needs.planned, world_);
        })->needs;
    stage.bytes += needs.planned;
    if (!results_at_owners_ || by.sends_directly || !needs.compressor_facts.sums_for_one())
      continue;
    stage.bytes.summed -= needs.planned.summed;
    stage.bytes.summed_at_owners += needs.planned.summed;
  }
  if (encodes_for_owners(scheme_.route)) {
    stage.bytes.owned = stage.bytes.gathered + stage.bytes.coded_pairs;
    if (!results_at_owners_) stage.bytes.spread = stage.bytes.owned;
    stage.bytes.gathered = stage.bytes.pairs = stage.bytes.coded_pairs = 0;
  }
  if (adds_in_hosts(scheme_.route)) stage.bytes.local = stage.gradient_bytes;
  stage.moved = by.moved(stage.bytes, world_);
  // A reduce-scatter is half of an all-reduce.
  const double dense_bytes = stage.gradient_bytes * (results_at_owners_ ? 0.5 : 1.0);
  stage.dense_moved = by.dense(dense_bytes, world_);
  stage.loses_from = by.loses_from(stage.bytes, dense_bytes);
  return stage;
}

}  // namespace penstock
