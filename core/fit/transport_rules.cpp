// Which memory a transport carries, and what one between devices goes together with.

#include "core/fit/rules.hpp"

#include "core/config/config.hpp"

#include <algorithm>

namespace penstock {
namespace {

bool carries_memory_of(const CollectiveFacts& collective, uint32_t device_type) {
  return (collective.device_types >> device_type & 1) != 0;
}

bool says(uint32_t flags, uint32_t flag) {
  return (flags & flag) != 0;
}

// Why nothing of a scheme goes from device to device; empty where something can.
std::string why_idle(const FitInput& input) {
  if (input.route != PENSTOCK_ROUTE_FLAT)
    return fmt::format("route \"{}\" has legs in host memory", route_name(input.route));
  if (input.has_transport)
    return fmt::format("collective \"{}\" reads payloads in host memory", input.collective.name);
  const bool any = std::any_of(input.groups.begin(), input.groups.end(), [](const FitGroup& of) {
    return of.compressor.sums || of.compressor.gathers_pairs;
  });
  return any || input.groups.empty() ? "" : "its payloads are codes, which hosts look at";
}

}  // namespace

Status check_reads_host_memory(const CollectiveFacts& collective) {
  // None at all is an old way to say nothing.
  if (collective.device_types == 0 || carries_memory_of(collective, PENSTOCK_DEVICE_CPU)) return {};
  return failed_precondition(
      "collective \"{0}\" carries memory of devices only, and a run also has messages in host "
      "memory: "
      "name it in [transport] as device = \"{0}\", and set scheme.collective to \"auto\", \"mpi\" "
      "or "
      "\"ucx\"",
      collective.name);
}

Status check_device_transport(const CollectiveFacts& collective) {
  if (!says(collective.flags, PENSTOCK_COLLECTIVE_TRANSPORT) ||
      !carries_memory_of(collective, PENSTOCK_DEVICE_CUDA))
    return failed_precondition(
        "transport.device = \"{}\" does not carry memory of CUDA devices; use \"nccl\", or leave "
        "it "
        "out: then messages go through pinned host memory",
        collective.name);
  if (!says(collective.flags, PENSTOCK_COLLECTIVE_ORDERED))
    return failed_precondition(
        "transport.device = \"{}\" matches messages by tags, but all sets share it, so it has to "
        "match them by order (ORDERED); use \"nccl\"",
        collective.name);
  return {};
}

Status check_between_devices(const FitInput& input, FitAdvice& advice) {
  if (!input.between_devices) return {};
  const CollectiveFacts& direct = *input.between_devices;
  PENSTOCK_TRY(check_device_transport(direct));
  const CollectiveFacts& tells = input.has_transport ? input.transport : input.collective;
  for (const auto& [pattern, what] :
       {std::pair(PENSTOCK_ALL_GATHER, "all-gather"), std::pair(PENSTOCK_BROADCAST, "broadcast")})
    if ((tells.patterns & PENSTOCK_PATTERN_BIT(pattern)) == 0 && input.world > 1)
      return failed_precondition(
          "transport.device = \"{}\" needs a collective beside it by which ranks tell each other "
          "what they send, but \"{}\" has no {}; use collective = \"mpi\" or \"ucx\"",
          direct.name, tells.name, what);
  for (const FitGroup& group : input.groups)
    if ((group.compressor.same_bits || group.memory.same_bits) &&
        !says(direct.flags, PENSTOCK_COLLECTIVE_SAME_BITS))
      return failed_precondition(
          "compressor \"{}\" with memory \"{}\" needs sums with the same bits on all ranks, which "
          "transport.device = \"{}\" does not promise (SAME_BITS); leave it out, or use \"nccl\"",
          group.compressor.name, group.memory.name, direct.name);
  if (input.deterministic && !says(direct.flags, PENSTOCK_COLLECTIVE_RANK_ORDER))
    return failed_precondition(
        "runtime.deterministic = true wants sums in ascending rank order, which transport.device = "
        "\"{}\" does not promise (RANK_ORDER); leave it out, or set deterministic = false",
        direct.name);
  if (std::string why = why_idle(input); !why.empty())
    advice.warnings.push_back(fmt::format(
        "transport.device = \"{}\" carries nothing of this: {}; leave it out", direct.name, why));
  return {};
}

}  // namespace penstock
