#include "core/fit/residence.hpp"

#include "core/plan/route.hpp"

namespace penstock {
namespace {

bool works_on_cuda(uint64_t device_types) {
  return (device_types >> PENSTOCK_DEVICE_CUDA & 1) != 0;
}

bool is_16_bits(uint32_t dtype) {
  return dtype == PENSTOCK_FLOAT16 || dtype == PENSTOCK_BFLOAT16;
}

// The reason why this route's sums are not made on devices, as half a sentence; empty: they are.
std::string why_not_added(const ResidenceSite& site, uint32_t route,
                          uint32_t dtype = PENSTOCK_FLOAT32) {
  const bool in_hosts = adds_in_hosts(route);
  const std::string_view transport = site.device_transport;
  if (transport.empty()) return "no transport.device is named";
  if (!site.has_all_ranks) return "sets of some ranks have no transport.device";
  if (in_hosts && site.connects != PENSTOCK_LEVEL_LOCAL)
    return fmt::format(
        "transport.device = \"{}\" connects all ranks, because the run's own scheme.route is not "
        "\"hierarchical\"",
        transport);
  if (!in_hosts && site.connects != PENSTOCK_LEVEL_WORLD)
    return fmt::format(
        "transport.device = \"{}\" connects only the ranks of each host, because the run's own "
        "scheme.route is \"hierarchical\"",
        transport);
  if (site.sums == 0) return fmt::format("transport.device = \"{}\" carries no sums", transport);
  if ((site.sums & PENSTOCK_DTYPE_BIT(dtype)) == 0)
    return fmt::format("transport.device = \"{}\" adds up no {}", transport, dtype_name(dtype));
  return {};
}

// The reason why all gradients are staged; empty: none.
std::string why_all_are(const BoundScheme& bound_scheme, const ResidenceSite& site) {
  const Scheme& scheme = bound_scheme.scheme();
  const uint32_t scheduler = bound_scheme.scheduler()->traits().flags;
  if (site.forward_waits && (scheduler & PENSTOCK_SCHEDULER_LAUNCHES_IN_FORWARD) != 0)
    return fmt::format("scheduler \"{}\" lets the next forward wait for it", scheme.scheduler);
  if (halves_sums(scheme.route))
    return fmt::format("route \"{}\" has legs in host memory", route_name(scheme.route));
  const std::string why = why_not_added(site, scheme.route);
  if (adds_in_hosts(scheme.route) && !why.empty())
    return fmt::format("the ranks of a host add it in host memory, because {}", why);
  if (!scheme.transport.empty())
    return fmt::format("collective \"{}\" reads payloads in host memory", scheme.collective);
  return {};
}

// `dtype`: the dtype that the compressor works in.
std::string why_compressor(const CompressorFacts& compressor, uint32_t dtype,
                           const ResidenceSite& site, uint32_t route) {
  if (!works_on_cuda(compressor.device_types))
    return fmt::format("compressor \"{}\" works on the CPU only (its build or its options)",
                       compressor.name);
  constexpr uint32_t kPlain = PENSTOCK_NEED_LOSSLESS | PENSTOCK_NEED_LINEAR;
  const bool is_plain = (compressor.need_flags & kPlain) == kPlain && compressor.sums;
  if (const std::string why = why_not_added(site, route, dtype); is_plain && !why.empty())
    return fmt::format("it is sent uncompressed and whole, and {}", why);
  if (!is_plain && dtype != PENSTOCK_FLOAT32)
    return fmt::format("compressor \"{}\" works on it as {}, expected float32", compressor.name,
                       dtype_name(dtype));
  return {};
}

std::string why_memory(const MemoryInstance& memory, const MemoryFacts& facts,
                       const ResidenceSite& site) {
  if (!works_on_cuda(memory.traits().device_types))
    return fmt::format("memory \"{}\" was built for the CPU only", facts.name);
  if (facts.same_bits)
    return fmt::format("memory \"{}\" keeps state that is equal on all ranks", facts.name);
  if (facts.finishes && site.result_is_sum)
    return fmt::format("memory \"{}\" finishes means, and sums are wanted", facts.name);
  return {};
}

std::string why_in_stage(const BoundScheme& bound_scheme, const DeclaredGradient& gradient,
                         const ResidenceSite& site) {
  if (std::string why = why_all_are(bound_scheme, site); !why.empty()) return why;
  const auto& options = bound_scheme.options(gradient.index);
  if (options.size() != 1) return "the scheduler chooses its compressor";
  const BoundScheme::Option& option = options.front();
  if (gradient.dtype != PENSTOCK_FLOAT32 && !is_16_bits(gradient.dtype))
    return fmt::format("it is {}, expected float32, float16 or bfloat16",
                       dtype_name(gradient.dtype));
  const ItemNeeds& needs = option.needs;
  if (std::string why =
          why_compressor(needs.compressor_facts, needs.dtype, site, bound_scheme.scheme().route);
      !why.empty())
    return why;
  if (option.owner_memory != nullptr)
    if (std::string why = why_memory(*option.owner_memory, option.owner_memory_facts, site);
        !why.empty())
      return why;
  return why_memory(*option.memory, option.needs.memory_facts, site);
}

std::string why_by_memories(const MemoryInstance* before, const MemoryInstance* after) {
  if (before == nullptr || after == nullptr) return {};
  if (before->plugin()->record.id == after->plugin()->record.id) return {};
  return fmt::format("memory \"{}\" gives way to \"{}\"", before->name(), after->name());
}

// The reason why a switch needs host memory: a carry, made when a memory ends on this rank or
// altogether, waits in host memory for the next step.
std::string why_at_switch(const BoundScheme& before, const BoundScheme& after, size_t gradient) {
  const uint32_t route = before.scheme().route, next_route = after.scheme().route;
  if (route != next_route && (has_owners(route) || has_owners(next_route)))
    return fmt::format("route \"{}\" gives way to \"{}\"", route_name(route),
                       route_name(next_route));
  if (has_owners(route) && before.ownership(route)[gradient] != after.ownership(route)[gradient])
    return "its owners change";
  const BoundScheme::Option& option = before.options(gradient).front();
  const BoundScheme::Option& next = after.options(gradient).front();
  if (std::string why = why_by_memories(option.memory, next.memory); !why.empty()) return why;
  if (std::string why = why_by_memories(option.owner_memory, next.owner_memory); !why.empty())
    return why;
  if (option.is_lossless() != next.is_lossless())
    return "only some stages of the scheme keep state for it";
  return {};
}

}  // namespace

std::string why_staged(std::span<const SchemeStage> stages, const DeclaredGradient& gradient,
                       const ResidenceSite& site) {
  for (const SchemeStage& stage : stages) {
    std::string why = why_in_stage(*stage.bound_scheme, gradient, site);
    if (why.empty())
      why = why_at_switch(*stages.front().bound_scheme, *stage.bound_scheme, gradient.index);
    if (why.empty()) continue;
    return stage.first_step == 0 ? why : fmt::format("{}, from step {} on", why, stage.first_step);
  }
  return {};
}

}  // namespace penstock
