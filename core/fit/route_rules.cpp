// The demands of a route on compressors and memories.
#include "core/fit/route_rules.hpp"

#include "core/config/config.hpp"
#include "core/config/defaults.hpp"
#include "core/plan/route.hpp"

#include <algorithm>

namespace penstock {

std::string named_for(const FitGroup& group, std::string_view kind, const std::string& name) {
  return group.example.empty()
             ? fmt::format("{} \"{}\"", kind, name)
             : fmt::format("{} \"{}\" (for {} and others)", kind, name, group.example);
}

namespace {

Status check_split(const FitGroup& group) {
  const CompressorFacts& compressor = group.compressor;
  if (compressor.n_rounds <= 1 && !compressor.gathers) return {};
  return failed_precondition(
      "route \"split\" reduces and scatters one summed round, which {} does not have; use "
      "compressor = \"{}\" with it, or route = \"flat\"",
      named_for(group, "compressor", compressor.name), defaults::kCompressor);
}

Status check_owner_memory(const FitGroup& group) {
  const CompressorFacts& compressor = group.compressor;
  const MemoryFacts& owner = group.owner_memory;
  if (owner.owns_momentum || owner.finishes)
    return failed_precondition(
        "on route \"shard\" owners encode sums again, and {} there would {}; set "
        "scheme.owner_memory to another memory, such as \"{}\"",
        named_for(group, "memory", owner.name),
        owner.owns_momentum ? "apply its momentum a second time" : "end the step on the owner only",
        defaults::kMemory);
  // Without a name there is no such memory: results stay at their owners, which encode nothing.
  const bool needs_kept_mass = (compressor.traits & PENSTOCK_COMPRESSOR_NEEDS_KEPT_MASS) != 0 &&
                               (compressor.need_flags & PENSTOCK_NEED_LOSSLESS) == 0;
  if (needs_kept_mass && group.memory.keeps && !owner.name.empty() && !owner.keeps)
    return failed_precondition(
        "on route \"shard\" owners encode sums again, and {} works only if the memory keeps the "
        "values that were not sent, but scheme.owner_memory = \"{}\" keeps nothing; set it to "
        "\"{}\", or remove it",
        named_for(group, "compressor", compressor.name), owner.name, group.memory.name);
  return {};
}

// Summed payloads pass at once, because they have no second coding: they travel as on `flat`.
Status check_shard(const FitGroup& group) {
  const CompressorFacts& compressor = group.compressor;
  if (!compressor.gathers) return {};
  if (compressor.sums)
    return failed_precondition(
        "route \"shard\" carries payloads that are gathered, but {} sums some of its payloads and "
        "gathers others; use route = \"flat\" or \"hierarchical\"",
        named_for(group, "compressor", compressor.name));
  if (compressor.n_rounds > 1)
    return failed_precondition(
        "route \"shard\" carries one round to the owners, but {} has {}, and each later round is "
        "made from the result of the round before on all ranks; use route = \"flat\" or "
        "\"hierarchical\"",
        named_for(group, "compressor", compressor.name), compressor.n_rounds);
  if (compressor.replicates)
    return failed_precondition(
        "{} keeps state that every rank updates from all payloads, but on route \"shard\" only the "
        "owners receive these; use route = \"flat\" or \"hierarchical\"",
        named_for(group, "compressor", compressor.name));
  if (group.memory.shifts)
    return failed_precondition(
        "{} moves its shift by the payload that this rank sends, and the mean of all shifts by the "
        "mean of the sent payloads, but on route \"shard\" the ranks receive payloads that the "
        "owners encoded again; use route = \"flat\" or \"hierarchical\"",
        named_for(group, "memory", group.memory.name));
  return check_owner_memory(group);
}

}  // namespace

Status check_shard_as_a_whole(const FitInput& input, FitAdvice& advice) {
  if (!encodes_for_owners(input.route)) {
    if (!input.names_owner_memory) return {};
    return failed_precondition(
        "scheme.owner_memory is for the sums that owners encode again, but route \"{}\" has no "
        "owners that encode; remove it, or set route = \"shard\"",
        route_name(input.route));
  }
  if ((input.collective.flags & PENSTOCK_COLLECTIVE_COMPOSITE) != 0)
    return failed_precondition(
        "collective \"{}\" gives each rank a part to add up by itself, and so does route "
        "\"shard\"; "
        "use collective = \"{}\" without it, or route = \"flat\"",
        input.collective.name, input.transport.name);
  // Sums of results that are for their owners go to the owners.
  if ((input.frontend & PENSTOCK_SET_RESULT_AT_OWNER) != 0) return {};
  const bool any = input.groups.empty() ||
                   std::any_of(input.groups.begin(), input.groups.end(),
                               [](const FitGroup& group) { return group.compressor.gathers; });
  // Rules by size may leave no gathered gradient in a small model. That is not an error.
  if (!any)
    advice.warnings.push_back(fmt::format(
        "route \"shard\" is for payloads that are gathered, but {} and every other compressor here "
        "gives summed payloads, which need no owner: they travel as on route \"flat\"",
        named_for(input.groups.front(), "compressor", input.groups.front().compressor.name)));
  return {};
}

Status check_route_of(uint32_t route, const FitGroup& group) {
  if (halves_sums(route)) return check_split(group);
  return encodes_for_owners(route) ? check_shard(group) : Status();
}

}  // namespace penstock
