// Rules about the memory that a transport carries, and about transport.device.
#include "core/fit/transport_rules.hpp"

#include "core/config/config.hpp"
#include "core/fit/offers.hpp"
#include "core/plan/route.hpp"

#include <algorithm>

namespace penstock {
namespace {

bool carries_memory_of(const CollectiveFacts& collective, uint32_t device_type) {
  return (collective.device_types >> device_type & 1) != 0;
}

bool says(uint32_t flags, uint32_t flag) {
  return (flags & flag) != 0;
}

// The collective that carries the headers of direct messages, and the key that names it.
std::pair<const CollectiveFacts&, std::string_view> telling(const FitInput& input) {
  const auto local = input.of_level.find(PENSTOCK_LEVEL_LOCAL);
  if (adds_in_hosts(input.route) && local != input.of_level.end())
    return {local->second, "transport.local"};
  return {input.has_transport ? input.transport : input.collective, "collective"};
}

// The reason why a scheme has no message from device to device; empty: it has some.
std::string why_idle(const FitInput& input) {
  const CollectiveFacts& direct = *input.between_devices;
  if (input.has_transport)
    return fmt::format("collective \"{}\" reads payloads in host memory", input.collective.name);
  if (adds_in_hosts(input.route))
    return direct.scatters_on_devices()
               ? ""
               : "it has no reduce-scatter or no all-gather for memory of devices";
  if (halves_sums(input.route))
    return fmt::format("route \"{}\" has legs in host memory", route_name(input.route));
  const bool has_owners = encodes_for_owners(input.route);
  const bool any = std::any_of(input.groups.begin(), input.groups.end(), [&](const FitGroup& of) {
    return (of.compressor.sums && direct.sums_on_devices()) ||
           (of.compressor.gathers_pairs && !has_owners);
  });
  if (any || input.groups.empty()) return "";
  if (has_owners) return "the messages to the owners go through host memory";
  return direct.sums_on_devices()
             ? "its payloads are codes, which are checked in host memory"
             : "it carries no sums, and the other payloads are codes, which are checked in host "
               "memory";
}

}  // namespace

Status check_reads_host_memory(const CollectiveFacts& collective) {
  // No device type at all: older plugins leave the field zero.
  if (collective.device_types == 0 || carries_memory_of(collective, PENSTOCK_DEVICE_CPU)) return {};
  return failed_precondition(
      "collective \"{0}\" carries memory of devices only, and a run also has messages in host "
      "memory: "
      "name it in [transport] as device = \"{0}\", and set scheme.collective to \"{1}\"",
      collective.name, kAutoTransport);
}

Status check_device_transport(const CollectiveFacts& collective, bool has_joined,
                              const Offers* offers) {
  if (says(collective.flags, PENSTOCK_COLLECTIVE_TRANSPORT) &&
      carries_memory_of(collective, PENSTOCK_DEVICE_CUDA))
    return {};
  std::vector<std::string> others;
  if (offers != nullptr)
    for (const CollectiveFacts& other : offers->collectives())
      if (check_device_transport(other, has_joined).ok()) others.push_back(other.name);
  return failed_precondition(
      "transport.device = \"{}\" does not carry memory of CUDA devices{}; use {}, or remove that "
      "key: then messages go through pinned host memory",
      collective.name,
      has_joined ? ": its library was asked, and does not say that it takes any (if the library "
                   "cannot be asked, set the option device_memory = \"yes\" of this collective)"
                 : "",
      others.empty() ? "a collective that does" : alternatives(others));
}

Status check_between_devices(const FitInput& input, FitAdvice& advice) {
  if (!input.between_devices) return {};
  const CollectiveFacts& direct = *input.between_devices;
  PENSTOCK_TRY(check_device_transport(direct, false, input.offers));
  const auto& [tells, key] = telling(input);
  for (const auto& [pattern, what] :
       {std::pair(PENSTOCK_ALL_GATHER, "all-gather"), std::pair(PENSTOCK_BROADCAST, "broadcast")})
    if ((tells.patterns & PENSTOCK_PATTERN_BIT(pattern)) == 0 && input.world > 1)
      return failed_precondition(
          "transport.device = \"{}\" needs a collective beside it for the headers of its messages, "
          "but \"{}\" has no {}; use {} = \"{}\"",
          direct.name, tells.name, what, key, kAutoTransport);
  const bool sums = direct.sums_on_devices();
  for (const FitGroup& group : input.groups)
    if (sums && (group.compressor.same_bits || group.memory.same_bits) &&
        !says(direct.flags, PENSTOCK_COLLECTIVE_SAME_BITS))
      return failed_precondition(
          "compressor \"{}\" with memory \"{}\" needs sums with the same bits on all ranks, which "
          "transport.device = \"{}\" does not promise (SAME_BITS); remove that key, or use {}",
          group.compressor.name, group.memory.name, direct.name,
          other_device_transport(input, "does"));
  if (sums && input.deterministic && !says(direct.flags, PENSTOCK_COLLECTIVE_RANK_ORDER))
    return failed_precondition(
        "runtime.deterministic = true wants sums in ascending rank order, which transport.device = "
        "\"{}\" does not promise (RANK_ORDER); remove that key, or set deterministic = false",
        direct.name);
  if (std::string why = why_idle(input); !why.empty())
    advice.warnings.push_back(fmt::format(
        "transport.device = \"{}\" carries no message of this scheme: {}; remove that key",
        direct.name, why));
  return {};
}

}  // namespace penstock
