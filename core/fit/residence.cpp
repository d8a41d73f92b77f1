#include "core/fit/residence.hpp"

#include "core/plan/route.hpp"

namespace penstock {
namespace {

bool works_on_cuda(uint64_t device_types) {
  return (device_types >> PENSTOCK_DEVICE_CUDA & 1) != 0;
}

// Of all gradients.
std::string why_all_are(const Fitting& fitting, const ResidenceSite& site) {
  const Scheme& scheme = fitting.scheme();
  const uint32_t scheduler = fitting.scheduler()->traits().flags;
  if (site.forward_waits && (scheduler & PENSTOCK_SCHEDULER_LAUNCHES_IN_FORWARD) != 0)
    return fmt::format("scheduler \"{}\" lets the next forward wait for it", scheme.scheduler);
  if (scheme.route != PENSTOCK_ROUTE_FLAT)
    return fmt::format("route \"{}\" has legs in host memory", route_name(scheme.route));
  if (!scheme.transport.empty())
    return fmt::format("collective \"{}\" reads payloads in host memory", scheme.collective);
  return {};
}

std::string why_compressor(const CompressorFacts& compressor, const ResidenceSite& site) {
  if (!works_on_cuda(compressor.device_types))
    return fmt::format("compressor \"{}\" works on the CPU only", compressor.name);
  constexpr uint32_t kPlain = PENSTOCK_NEED_LOSSLESS | PENSTOCK_NEED_LINEAR;
  const bool is_plain = (compressor.need_flags & kPlain) == kPlain && compressor.sums;
  if (is_plain && !site.sends_directly)
    return "it is sent as it is, and so as a whole, and no transport.device is named";
  return {};
}

std::string why_memory(const MemoryInstance& memory, const MemoryFacts& facts,
                       const ResidenceSite& site) {
  if (!works_on_cuda(memory.traits().device_types))
    return fmt::format("memory \"{}\" works on the CPU only", facts.name);
  if (facts.same_bits)
    return fmt::format("memory \"{}\" keeps what is equal on all ranks", facts.name);
  if (facts.finishes && site.result_is_sum)
    return fmt::format("memory \"{}\" finishes means, and sums are wanted", facts.name);
  return {};
}

std::string why_in_stage(const Fitting& fitting, const DeclaredGradient& gradient,
                         const ResidenceSite& site) {
  if (std::string why = why_all_are(fitting, site); !why.empty()) return why;
  const auto& options = fitting.options(gradient.index);
  if (options.size() != 1) return "the scheduler chooses its compressor";
  const Fitting::Option& option = options.front();
  if (gradient.dtype != PENSTOCK_FLOAT32 || option.needs.dtype != PENSTOCK_FLOAT32)
    return fmt::format("it is {}, expected float32", dtype_name(gradient.dtype));
  if (std::string why = why_compressor(option.needs.compressor_facts, site); !why.empty())
    return why;
  return why_memory(*option.memory, option.needs.memory_facts, site);
}

// What a memory hands over when it ends waits in host memory for the next step.
std::string why_at_switch(const Fitting::Option& before, const Fitting::Option& after) {
  if (before.memory->plugin()->record.id != after.memory->plugin()->record.id)
    return fmt::format("memory \"{}\" gives way to \"{}\"", before.memory->name(),
                       after.memory->name());
  if (before.is_lossless() != after.is_lossless())
    return "something is kept of it in some stages only";
  return {};
}

}  // namespace

std::string why_staged(std::span<const Stage> stages, const DeclaredGradient& gradient,
                       const ResidenceSite& site) {
  const auto option_in = [&](const Stage& stage) -> const Fitting::Option& {
    return stage.fitting->options(gradient.index).front();
  };
  for (const Stage& stage : stages) {
    std::string why = why_in_stage(*stage.fitting, gradient, site);
    if (why.empty()) why = why_at_switch(option_in(stages.front()), option_in(stage));
    if (why.empty()) continue;
    return stage.first_step == 0 ? why : fmt::format("{}, from step {} on", why, stage.first_step);
  }
  return {};
}

}  // namespace penstock
