#include "core/fit/rules.hpp"

#include "core/config/config.hpp"

#include <penstock/runtime.h>

namespace penstock {

namespace {

// "compressor "dgc" (for example for layer1.weight)".
std::string who(const FitGroup& group, std::string_view kind, const std::string& name) {
  return group.example.empty()
             ? fmt::format("{} \"{}\"", kind, name)
             : fmt::format("{} \"{}\" (for {} and others)", kind, name, group.example);
}

bool has(uint32_t flags, uint32_t flag) {
  return (flags & flag) != 0;
}

bool is_composite(const FitInput& input) {
  return has(input.collective.flags, PENSTOCK_COLLECTIVE_COMPOSITE);
}

// Who moves bytes: the collective itself, or what the composite builds on.
const CollectiveFacts& base_of(const FitInput& input) {
  return is_composite(input) ? input.transport : input.collective;
}

Status check_route(const FitInput& input) {
  PENSTOCK_TRY(check_route_is_there(input.route));
  if ((input.scheduler.routes & (uint64_t{1} << input.route)) == 0) {
    std::string offered;
    for (uint32_t route = PENSTOCK_ROUTE_FLAT; route <= PENSTOCK_ROUTE_SHARD; ++route) {
      if ((input.scheduler.routes >> route & 1) == 0) continue;
      offered += fmt::format("{}\"{}\"", offered.empty() ? "" : ", ", route_name(route));
    }
    return failed_precondition(
        "scheduler \"{}\" cannot produce route \"{}\", only {}; change scheme.route or the "
        "scheduler (\"dear\" makes split, \"fusion\" and \"wfbp\" make flat)",
        input.scheduler.name, route_name(input.route), offered);
  }
  const bool defers = has(input.scheduler.flags, PENSTOCK_SCHEDULER_LAUNCHES_IN_FORWARD) ||
                      input.route == PENSTOCK_ROUTE_SPLIT;
  if (defers && !has(input.frontend, PENSTOCK_SET_DEFERRED_UPDATE)) {
    return failed_precondition(
        "scheduler \"{}\" with route \"{}\" leaves work for the next forward, but this frontend "
        "cannot update parameters there (DEFERRED_UPDATE); use DistributedOptimizer of "
        "penstock.torch, or scheduler = \"fusion\" with route = \"flat\"",
        input.scheduler.name, route_name(input.route));
  }
  return {};
}

Status check_collective(const FitInput& input) {
  if (is_composite(input) && !input.has_transport) {
    return failed_precondition(
        "collective \"{}\" is a composite and needs a transport under it; set "
        "scheme.transport = \"mpi\"",
        input.collective.name);
  }
  if (!is_composite(input) && input.has_transport) {
    return failed_precondition(
        "collective \"{}\" is a transport itself, so scheme.transport = \"{}\" has no place; "
        "remove it, or set scheme.collective to a composite such as \"oktopk\"",
        input.collective.name, input.transport.name);
  }
  if (is_composite(input) && !has(input.transport.flags, PENSTOCK_COLLECTIVE_TRANSPORT)) {
    return failed_precondition(
        "scheme.transport = \"{}\" is not a transport; use \"mpi\" under \"{}\"",
        input.transport.name, input.collective.name);
  }
  return {};
}

// Single rank worlds exchange nothing, so that every collective serves them.
Status check_patterns(const FitInput& input) {
  const uint64_t patterns =
      input.collective.patterns | (is_composite(input) ? input.transport.patterns : 0);
  const auto lacks = [&](uint32_t pattern) {
    return (patterns & PENSTOCK_PATTERN_BIT(pattern)) == 0;
  };
  const auto refuse = [&](const FitGroup& group, std::string_view what, std::string_view pattern) {
    return failed_precondition(
        "{} {} payloads, but collective \"{}\" has no {}; use collective = \"mpi\"",
        who(group, "compressor", group.compressor.name), what, base_of(input).name, pattern);
  };
  for (const FitGroup& group : input.groups) {
    if (input.world == 1) break;
    if (input.route == PENSTOCK_ROUTE_SPLIT) {
      if (lacks(PENSTOCK_REDUCE_SCATTER))
        return refuse(group, "on route \"split\" scatters", "reduce-scatter");
      if (lacks(PENSTOCK_ALL_GATHER))
        return refuse(group, "on route \"split\" gathers", "all-gather");
      continue;
    }
    if (group.compressor.sums && lacks(PENSTOCK_ALL_REDUCE))
      return refuse(group, "sums", "all-reduce");
    if (group.compressor.gathers && lacks(PENSTOCK_ALL_GATHER))
      return refuse(group, "gathers", "all-gather");
  }
  return {};
}

// A composite that may refuse entries works on sparse payloads and hands entries back to the
// memory.
Status check_refusals(const FitInput& input) {
  if (!is_composite(input) || !has(input.collective.flags, PENSTOCK_COLLECTIVE_MAY_REFUSE))
    return {};
  bool any_sparse = input.groups.empty();
  for (const FitGroup& group : input.groups) {
    any_sparse |= group.compressor.gathers_sparse;
    if (group.compressor.gathers_sparse && (!group.memory.has_give_back || !group.memory.keeps)) {
      return failed_precondition(
          "collective \"{}\" may refuse entries and hand them back, but {} keeps nothing; use "
          "memory = \"residual\", or collective = \"{}\" without it",
          input.collective.name, who(group, "memory", group.memory.name), input.transport.name);
    }
  }
  if (any_sparse) return {};
  return failed_precondition(
      "collective \"{}\" adds up sparse payloads, but compressor \"{}\" and every other one here "
      "gives summed or coded ones; use compressor = \"topk\", or collective = \"{}\" without it",
      input.collective.name, input.groups.front().compressor.name, input.transport.name);
}

Status check_candidates(const FitInput& input, FitAdvice& advice) {
  const bool chooses = has(input.scheduler.flags, PENSTOCK_SCHEDULER_CHOOSES);
  if (!chooses && input.most_candidates > 1)
    return failed_precondition(
        "candidates give {} compressors to choose from, but scheduler \"{}\" always takes the "
        "first; use a scheduler that chooses, such as \"partial\", or leave the candidates out",
        input.most_candidates, input.scheduler.name);
  if (chooses && input.most_candidates <= 1)
    advice.warnings.push_back(
        fmt::format("scheduler \"{}\" chooses among candidates, but no gradient has more than one; "
                    "name them in "
                    "[scheme], as in candidates = [\"topk\", \"none\"]",
                    input.scheduler.name));
  return {};
}

Status check_determinism(const FitInput& input) {
  if (!input.deterministic) return {};
  if (has(input.scheduler.flags, PENSTOCK_SCHEDULER_MEASURES))
    return failed_precondition(
        "runtime.deterministic = true wants the same plan in every run, but scheduler \"{}\" plans "
        "by measured times; use scheduler = \"fusion\" or \"wfbp\", or deterministic = false",
        input.scheduler.name);
  for (const CollectiveFacts* collective : {&input.collective, &base_of(input)}) {
    if (has(collective->flags, PENSTOCK_COLLECTIVE_RANK_ORDER)) continue;
    return failed_precondition(
        "runtime.deterministic = true wants sums in ascending rank order, which collective \"{}\" "
        "does not promise (RANK_ORDER); use collective = \"mpi\" with an algorithm that does, or "
        "deterministic = false",
        collective->name);
  }
  return {};
}

Status check_compressor(const FitInput& input, const FitGroup& group, FitAdvice& advice) {
  const CompressorFacts& compressor = group.compressor;
  if ((compressor.device_types >> group.device_type & 1) == 0) {
    return failed_precondition(
        "{} has no code for device type {}; use a compressor that has, such as \"none\"",
        who(group, "compressor", compressor.name), group.device_type);
  }
  const uint32_t wanted = PENSTOCK_NEED_LOSSLESS | PENSTOCK_NEED_LINEAR;
  const bool splits =
      (compressor.need_flags & wanted) == wanted && compressor.n_rounds == 1 && compressor.sums;
  if (input.route == PENSTOCK_ROUTE_SPLIT && !splits) {
    return failed_precondition(
        "route \"split\" reduces and scatters in one summed round without loss, which {} does not "
        "do; use compressor = \"none\" with it, or route = \"flat\"",
        who(group, "compressor", compressor.name));
  }
  // Where nothing is ever left over there is nothing to keep (1-D gradients that travel dense).
  const bool loses_mass =
      !group.memory.keeps && !has(compressor.need_flags, PENSTOCK_NEED_LOSSLESS);
  if (has(compressor.traits, PENSTOCK_COMPRESSOR_NEEDS_KEPT_MASS) && loses_mass) {
    return failed_precondition(
        "{} works only where the memory keeps what was not sent, but memory \"{}\" keeps "
        "nothing; use memory = \"residual\"",
        who(group, "compressor", compressor.name), group.memory.name);
  }
  if (has(compressor.traits, PENSTOCK_COMPRESSOR_NEEDS_MEMORY) && loses_mass) {
    // A vote has no size that an error could be measured in: what it wants is the momentum.
    if (!compressor.final_result)
      advice.warnings.push_back(
          fmt::format("{} is biased and converges badly with memory \"{}\", which keeps nothing; "
                      "memory = \"residual\" mends it",
                      who(group, "compressor", compressor.name), group.memory.name));
    else if (!group.memory.owns_momentum)
      advice.warnings.push_back(fmt::format(
          "{} votes on what memory \"{}\" makes of the gradients, and expects a momentum "
          "there; memory = \"momentum\" has it",
          who(group, "compressor", compressor.name), group.memory.name));
  }
  if (compressor.final_result && has(input.frontend, PENSTOCK_SET_SUM)) {
    advice.warnings.push_back(
        fmt::format("{} gives a vote, not a mean: asking for the sum over ranks does not change "
                    "its result",
                    who(group, "compressor", compressor.name)));
  }
  // One rank's sum is that of all ranks.
  const bool bits_may_differ =
      input.world > 1 && !has(base_of(input).flags, PENSTOCK_COLLECTIVE_SAME_BITS);
  if (compressor.same_bits && bits_may_differ) {
    return failed_precondition(
        "{} needs sums with the same bits on all ranks, which collective \"{}\" does not promise "
        "(SAME_BITS); use an algorithm of it that adds in rank order (mpi: algorithm = \"direct\")",
        who(group, "compressor", compressor.name), base_of(input).name);
  }
  return {};
}

Status check_memory(const FitInput& input, const FitGroup& group) {
  if (group.memory.owns_momentum && has(input.frontend, PENSTOCK_SET_OPTIMIZER_MOMENTUM)) {
    return failed_precondition(
        "{} applies momentum, and so does the optimizer: it would count twice; set the "
        "optimizer's momentum to 0, or use memory = \"residual\"",
        who(group, "memory", group.memory.name));
  }
  return {};
}

Status check_size(const FitInput& input) {
  if (input.arena_bytes == 0 || input.arena_bytes <= input.arena_limit_bytes) return {};
  const double mib = 1 << 20;
  return failed_precondition(
      "payloads and scratch of {} ranks need {:.1f} MiB, more than runtime.arena_limit_mb = "
      "{:.0f}; "
      "raise it, send less (density, rank), or use compressor = \"none\" for the largest "
      "gradients",
      input.world, static_cast<double>(input.arena_bytes) / mib,
      static_cast<double>(input.arena_limit_bytes) / mib);
}

}  // namespace

void add_group(FitInput& input, FitGroup group) {
  for (const FitGroup& other : input.groups) {
    if (other.compressor == group.compressor && other.memory == group.memory &&
        other.device_type == group.device_type) {
      return;
    }
  }
  input.groups.push_back(std::move(group));
}

Status check_route_is_there(uint32_t route) {
  if (route != PENSTOCK_ROUTE_HIERARCHICAL && route != PENSTOCK_ROUTE_SHARD) return {};
  return unimplemented(
      "route \"{}\" is not available in this version; use route = \"flat\" or \"split\"",
      route_name(route));
}

Result<FitAdvice> check_fit(const FitInput& input) {
  FitAdvice advice;
  PENSTOCK_TRY(check_route(input));
  PENSTOCK_TRY(check_collective(input));
  PENSTOCK_TRY(check_patterns(input));
  PENSTOCK_TRY(check_refusals(input));
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
