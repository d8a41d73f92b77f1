#include "core/fit/rules.hpp"

#include "core/config/config.hpp"
#include "core/config/defaults.hpp"
#include "core/fit/offers.hpp"
#include "core/fit/route_rules.hpp"
#include "core/fit/transport_rules.hpp"
#include "core/plan/route.hpp"

#include <penstock/runtime.h>

#include <algorithm>
#include <cmath>
#include <tuple>

namespace penstock {

namespace {

bool has(uint32_t flags, uint32_t flag) {
  return (flags & flag) != 0;
}

// A memory with momentum that does not inspect sent payloads, such as the memory for votes.
bool has_momentum(const MemoryFacts& memory) {
  return memory.owns_momentum && !memory.records;
}

bool loses_something(const CompressorFacts& compressor) {
  return !has(compressor.need_flags, PENSTOCK_NEED_LOSSLESS);
}

bool is_composite(const FitInput& input) {
  return has(input.collective.flags, PENSTOCK_COLLECTIVE_COMPOSITE);
}

// The collective that moves the bytes: the collective itself, or the transport under the composite.
const CollectiveFacts& base_of(const FitInput& input) {
  return is_composite(input) ? input.transport : input.collective;
}

// The collective that moves the bytes of a leg.
const CollectiveFacts& carrier_of(const FitInput& input, const LegKind& leg) {
  const auto own = input.of_level.find(leg.level);
  return own == input.of_level.end() ? base_of(input) : own->second;
}

bool defers(const FitInput& input) {
  return has(input.scheduler.flags, PENSTOCK_SCHEDULER_LAUNCHES_IN_FORWARD) ||
         halves_sums(input.route);
}

// Each of both gives the exchange the time of the next forward, and the optimizer steps at another
// moment for each.
Status check_apply(const FitInput& input) {
  if (!input.applies_previous) return {};
  if (!has(input.frontend, PENSTOCK_SET_PREVIOUS_UPDATE))
    return failed_precondition(
        "scheme.apply = \"previous\" applies the mean of the step before, but this frontend "
        "applies "
        "each mean in its own step (PREVIOUS_UPDATE); use DistributedOptimizer of penstock.torch, "
        "or remove the key");
  if (!defers(input)) return {};
  FitInput on_flat = input;
  on_flat.route = PENSTOCK_ROUTE_FLAT;
  on_flat.applies_previous = false;
  return failed_precondition(
      "scheduler \"{}\" with route \"{}\" leaves work for the next forward, after which each "
      "parameter is updated, but scheme.apply = \"previous\" updates a whole step later; remove "
      "the "
      "key, or use {} with route = \"flat\"",
      input.scheduler.name, route_name(input.route),
      other_scheduler(on_flat, "leaves nothing for it"));
}

Status check_route(const FitInput& input) {
  if ((input.scheduler.routes & (uint64_t{1} << input.route)) == 0) {
    std::string offered;
    for (const planning::Route& route : kRoutes) {
      if ((input.scheduler.routes >> route.number & 1) == 0) continue;
      offered += fmt::format("{}\"{}\"", offered.empty() ? "" : ", ", route.name);
    }
    return failed_precondition(
        "scheduler \"{}\" cannot produce route \"{}\", only {}; change scheme.route, or use {}",
        input.scheduler.name, route_name(input.route), offered,
        other_scheduler(input, "produces this route"));
  }
  if (defers(input) && !has(input.frontend, PENSTOCK_SET_DEFERRED_UPDATE)) {
    FitInput on_flat = input;
    on_flat.route = PENSTOCK_ROUTE_FLAT;
    return failed_precondition(
        "scheduler \"{}\" with route \"{}\" leaves work for the next forward, but this frontend "
        "cannot update parameters there (DEFERRED_UPDATE); use DistributedOptimizer of "
        "penstock.torch, or {} with route = \"flat\"",
        input.scheduler.name, route_name(input.route),
        other_scheduler(on_flat, "leaves nothing for it"));
  }
  return {};
}

Status check_collective(const FitInput& input) {
  PENSTOCK_TRY(check_reads_host_memory(base_of(input)));
  for (const auto& [level, transport] : input.of_level)
    PENSTOCK_TRY(check_reads_host_memory(transport));
  if (is_composite(input) && !input.has_transport) {
    return failed_precondition(
        "collective \"{}\" is a composite and needs a transport under it; set "
        "scheme.transport = \"{}\"",
        input.collective.name, kAutoTransport);
  }
  if (!is_composite(input) && input.has_transport) {
    return failed_precondition(
        "collective \"{}\" is a transport itself, so scheme.transport = \"{}\" has no place; "
        "remove it, or use {}",
        input.collective.name, input.transport.name, other_collective(input, "is a composite"));
  }
  if (is_composite(input) && !has(input.transport.flags, PENSTOCK_COLLECTIVE_TRANSPORT)) {
    return failed_precondition(
        "scheme.transport = \"{}\" is not a transport; use \"{}\" under \"{}\"",
        input.transport.name, kAutoTransport, input.collective.name);
  }
  return {};
}

void warn_of_idle_levels(const FitInput& input, FitAdvice& advice) {
  for (const auto& [level, transport] : input.of_level) {
    const std::span<const LegKind> legs = legs_of(input.route);
    if (std::any_of(legs.begin(), legs.end(),
                    [at = level](const LegKind& leg) { return leg.level == at; }))
      continue;
    const bool is_local = level == PENSTOCK_LEVEL_LOCAL;
    advice.warnings.push_back(fmt::format(
        "transport.{} = \"{}\" carries no message of this run: route \"{}\" has no messages only "
        "{}; set scheme.route = \"hierarchical\", or remove that key",
        is_local ? "local" : "cross", transport.name, route_name(input.route),
        is_local ? "within a host" : "between hosts"));
  }
}

// Every collective suits a world of one rank, because it exchanges nothing.
Status check_patterns(const FitInput& input) {
  const auto lacks = [&](const LegKind& leg, uint32_t pattern) {
    const uint64_t patterns = carrier_of(input, leg).patterns |
                              (is_composite(input) && leg.encodes ? input.collective.patterns : 0);
    return (patterns & PENSTOCK_PATTERN_BIT(pattern)) == 0;
  };
  const auto refuse = [&](const FitGroup& group, const LegKind& leg, std::string_view what,
                          std::string_view pattern) {
    return failed_precondition("{} {} payloads, but collective \"{}\" has no {}; use {}",
                               named_for(group, "compressor", group.compressor.name), what,
                               carrier_of(input, leg).name, pattern,
                               other_collective(input, group, "has it"));
  };
  for (const FitGroup& group : input.groups) {
    if (input.world == 1) break;
    const std::string on_route = fmt::format("on route \"{}\" ", route_name(input.route));
    for (const LegKind& leg : legs_of(input.route))
      for (const auto& [pattern, verb, what] :
           {std::tuple(PENSTOCK_REDUCE_SCATTER, "scatters", "reduce-scatter"),
            std::tuple(PENSTOCK_ALL_GATHER, "gathers", "all-gather"),
            std::tuple(PENSTOCK_ALL_TO_ALL, "sends owners their", "all-to-all")})
        if (leg.pattern == uint32_t(pattern) && lacks(leg, leg.pattern))
          return refuse(group, leg, on_route + verb, what);
    for (const LegKind& leg : legs_of(input.route)) {
      if (!leg.encodes || !leg.decodes) continue;
      if (group.compressor.sums && lacks(leg, PENSTOCK_ALL_REDUCE))
        return refuse(group, leg, "sums", "all-reduce");
      if (group.compressor.gathers && lacks(leg, PENSTOCK_ALL_GATHER))
        return refuse(group, leg, "gathers", "all-gather");
    }
  }
  return {};
}

// A composite that may refuse entries needs sparse payloads, and memories that take entries back.
Status check_refusals(const FitInput& input) {
  if (!is_composite(input) || !has(input.collective.flags, PENSTOCK_COLLECTIVE_MAY_REFUSE))
    return {};
  bool any_sparse = input.groups.empty();
  for (const FitGroup& group : input.groups) {
    any_sparse |= group.compressor.gathers_sparse;
    if (group.compressor.gathers_sparse && (!group.memory.has_give_back || !group.memory.keeps)) {
      return failed_precondition(
          "collective \"{}\" may refuse entries and hand them back, but {} keeps nothing; use "
          "{}, or collective = \"{}\" without it",
          input.collective.name, named_for(group, "memory", group.memory.name),
          other_memory(input, group, "takes them back"), input.transport.name);
    }
  }
  if (any_sparse) return {};
  FitGroup kept = input.groups.front();  // as if its memory kept entries
  kept.memory.keeps = kept.memory.has_give_back = true;
  return failed_precondition(
      "collective \"{}\" adds up sparse payloads of float32 values, but compressor \"{}\" and "
      "every other compressor here gives payloads of another kind; use {}, or collective = \"{}\" "
      "without it",
      input.collective.name, input.groups.front().compressor.name,
      other_compressor(input, kept, "gives such"), input.transport.name);
}

Status check_candidates(const FitInput& input, FitAdvice& advice) {
  const bool chooses = has(input.scheduler.flags, PENSTOCK_SCHEDULER_CHOOSES);
  if (!chooses && input.most_candidates > 1)
    return failed_precondition(
        "candidates give {} compressors to choose from, but scheduler \"{}\" always takes the "
        "first; use {}, or remove the candidates",
        input.most_candidates, input.scheduler.name, other_scheduler(input, "chooses"));
  if (chooses && input.most_candidates <= 1)
    advice.warnings.push_back(
        fmt::format("scheduler \"{}\" chooses among candidates, but no gradient has more than one "
                    "candidate; name them in [scheme] as candidates, an array of compressors",
                    input.scheduler.name));
  return {};
}

Status check_determinism(const FitInput& input) {
  if (!input.deterministic) return {};
  if (has(input.scheduler.flags, PENSTOCK_SCHEDULER_MEASURES))
    return failed_precondition(
        "runtime.deterministic = true wants the same plan in every run, but scheduler \"{}\" plans "
        "by measured times; use {}, or deterministic = false",
        input.scheduler.name, other_scheduler(input, "does not"));
  FitInput alone = input;
  alone.groups.clear();
  alone.has_transport = false;
  std::vector<const CollectiveFacts*> adding{&input.collective};
  for (const LegKind& leg : legs_of(input.route)) adding.push_back(&carrier_of(input, leg));
  for (const CollectiveFacts* collective : adding) {
    if (has(collective->flags, PENSTOCK_COLLECTIVE_RANK_ORDER)) continue;
    return failed_precondition(
        "runtime.deterministic = true wants sums in ascending rank order, which collective \"{}\" "
        "does not promise (RANK_ORDER); use one of its algorithms that promises it, {}, or "
        "deterministic = false",
        collective->name, other_collective(alone, "does"));
  }
  return {};
}

Status check_compressor(const FitInput& input, const FitGroup& group, FitAdvice& advice) {
  const CompressorFacts& compressor = group.compressor;
  if ((compressor.device_types >> group.device_type & 1) == 0) {
    return failed_precondition("{} has no code for device type {}; use {}",
                               named_for(group, "compressor", compressor.name), group.device_type,
                               other_compressor(input, group, "has"));
  }
  PENSTOCK_TRY(check_route_of(input.route, group));
  // A lossless compressor leaves nothing to keep (1-D gradients that travel dense).
  const bool loses_mass =
      !group.memory.keeps && !has(compressor.need_flags, PENSTOCK_NEED_LOSSLESS);
  const bool loses_rest = loses_mass && !group.memory.adds_rest;
  if (has(compressor.traits, PENSTOCK_COMPRESSOR_NEEDS_KEPT_MASS) && loses_mass) {
    return failed_precondition(
        "{} works only if the memory keeps the values that were not sent, but memory \"{}\" keeps "
        "nothing; use {}",
        named_for(group, "compressor", compressor.name), group.memory.name,
        other_memory(input, group, "keeps them"));
  }
  if (has(compressor.traits, PENSTOCK_COMPRESSOR_NEEDS_MEMORY) && loses_rest) {
    // The error of a vote cannot be measured, because a vote has no size: it needs a momentum.
    if (!compressor.final_result)
      advice.warnings.push_back(
          fmt::format("{} is biased and converges badly with memory \"{}\", which keeps nothing; "
                      "{} fixes it",
                      named_for(group, "compressor", compressor.name), group.memory.name,
                      other_memory(input, group, "keeps the values that are not sent")));
    else if (!group.memory.owns_momentum)
      advice.warnings.push_back(fmt::format(
          "{} votes on the signs of the values that memory \"{}\" gives it, and expects these "
          "values to be a momentum; {} has a momentum",
          named_for(group, "compressor", compressor.name), group.memory.name,
          other_memory(input, group, "has momentum", has_momentum)));
  }
  if (compressor.final_result && has(input.frontend, PENSTOCK_SET_SUM)) {
    advice.warnings.push_back(
        fmt::format("{} gives a vote, not a mean: asking for the sum over ranks does not change "
                    "its result",
                    named_for(group, "compressor", compressor.name)));
  }
  // In a world of one rank all sums are equal.
  const CollectiveFacts* differs = nullptr;
  for (const LegKind& leg : legs_of(input.route))
    if (input.world > 1 && !has(carrier_of(input, leg).flags, PENSTOCK_COLLECTIVE_SAME_BITS))
      differs = &carrier_of(input, leg);
  const bool memory_needs_them = group.memory.same_bits && compressor.sums;
  if ((compressor.same_bits || memory_needs_them) && differs != nullptr) {
    return failed_precondition(
        "{} needs sums with the same bits on all ranks, which collective \"{}\" does not promise "
        "(SAME_BITS); use one of its algorithms that adds in rank order (algorithm = \"direct\", "
        "where it has that option), or {}",
        compressor.same_bits ? named_for(group, "compressor", compressor.name)
                             : named_for(group, "memory", group.memory.name),
        differs->name, other_collective(input, group, "promises that"));
  }
  return {};
}

Status check_memory(const FitInput& input, const FitGroup& group) {
  if (group.memory.owns_momentum && has(input.frontend, PENSTOCK_SET_OPTIMIZER_MOMENTUM)) {
    return failed_precondition(
        "{} applies momentum, and so does the optimizer: it would count twice; set the "
        "optimizer's momentum to 0 (of Adam and AdamW betas=(0.0, 0.999)), or use {}",
        named_for(group, "memory", group.memory.name), other_memory(input, group, "applies none"));
  }
  if (group.memory.shifts && group.compressor.final_result) {
    return failed_precondition(
        "{} compresses differences and adds up the received payloads, but compressor \"{}\" gives "
        "a vote, which is not the sum of the sent payloads; use {} with it, or {} with the vote",
        named_for(group, "memory", group.memory.name), group.compressor.name,
        other_compressor(input, group, "gives sums", loses_something),
        other_memory(input, group, "has momentum", has_momentum));
  }
  return {};
}

}  // namespace

Status check_size(const FitInput& input) {
  if (input.arena_bytes == 0 || input.arena_bytes <= input.arena_limit_bytes) return {};
  const auto mib = [](uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  return failed_precondition(
      "payloads of {} ranks need {:.1f} MiB, more than runtime.arena_limit_mb = {:.0f}, although "
      "received payloads that may come in slices of ranks come from one rank at a time; {:.1f} MiB "
      "are for own payloads and for those that cannot come in slices (votes, sums, payloads on a "
      "device or of a composite); set arena_limit_mb = {:.0f} or more, send less (density, rank), "
      "or use compressor = \"{}\" for the largest gradients",
      input.world, mib(input.arena_bytes), mib(input.arena_limit_bytes),
      mib(input.arena_fixed_bytes), std::ceil(mib(input.arena_bytes)), defaults::kCompressor);
}

void add_group(FitInput& input, FitGroup group) {
  for (const FitGroup& other : input.groups) {
    if (other.compressor == group.compressor && other.memory == group.memory &&
        other.owner_memory == group.owner_memory && other.device_type == group.device_type) {
      return;
    }
  }
  input.groups.push_back(std::move(group));
}

Result<FitAdvice> check_fit(const FitInput& input) {
  FitAdvice advice;
  PENSTOCK_TRY(check_route(input));
  PENSTOCK_TRY(check_apply(input));
  PENSTOCK_TRY(check_collective(input));
  warn_of_idle_levels(input, advice);
  PENSTOCK_TRY(check_between_devices(input, advice));
  PENSTOCK_TRY(check_patterns(input));
  PENSTOCK_TRY(check_refusals(input));
  PENSTOCK_TRY(check_shard_as_a_whole(input, advice));
  PENSTOCK_TRY(check_candidates(input, advice));
  PENSTOCK_TRY(check_determinism(input));
  for (const FitGroup& group : input.groups) {
    PENSTOCK_TRY(check_compressor(input, group, advice));
    PENSTOCK_TRY(check_memory(input, group));
  }
  PENSTOCK_TRY(check_size(input));
  return advice;
}

}  // namespace penstock
