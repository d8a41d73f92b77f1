#include "tools/penstock/fit/sample_residence.hpp"

#include "core/fit/residence.hpp"
#include "core/fit/resolve.hpp"
#include "core/fit/transport_rules.hpp"
#include "core/plan/route.hpp"
#include "tools/penstock/fit/usual_model.hpp"

#include <algorithm>

namespace penstock {
namespace {

// Facts about the scheme's device transport that are known without a run.
Result<std::optional<CollectiveFacts>> device_transport_of(const Scheme& scheme,
                                                           Registry& registry) {
  if (scheme.device_transport.empty()) return std::optional<CollectiveFacts>();
  PENSTOCK_ASSIGN(const auto instance,
                  make_instance<penstock_collective>(scheme, scheme.device_transport, registry));
  const CollectiveFacts facts = collective_facts(instance->name(), instance->traits());
  PENSTOCK_TRY(check_device_transport(facts, false));
  return std::optional(facts);
}

}  // namespace

Result<std::vector<SampleResidence>> sample_residence(const Config& config, Registry& registry) {
  constexpr uint32_t kRanks = 2;
  const std::vector<DeclaredGradient> model = usual_model();
  std::vector<const DeclaredGradient*> gradients;
  for (const DeclaredGradient& gradient : model) gradients.push_back(&gradient);
  std::vector<SchemeStage> stages;
  for (const uint64_t step : config.stages()) {
    const Scheme scheme = config.at_step(step);
    PENSTOCK_ASSIGN(auto bound_scheme,
                    BoundScheme::make(scheme, choose(scheme, gradients), registry,
                                      {.world = kRanks,
                                       .forward_waits = true,
                                       .connects_devices = !scheme.device_transport.empty()}));
    stages.push_back({step, std::move(bound_scheme)});
  }
  const Scheme first = config.at_step(0);
  PENSTOCK_ASSIGN(const std::optional<CollectiveFacts> direct,
                  device_transport_of(first, registry));
  const bool in_hosts = adds_in_hosts(first.route);
  const bool gathers_directly = direct && first.route == PENSTOCK_ROUTE_FLAT;
  const bool sums =
      direct && (in_hosts ? direct->scatters_on_devices() : direct->sums_on_devices());
  const ResidenceSite site{.forward_waits = true,
                           .device_transport = direct ? direct->name : "",
                           .connects = in_hosts ? PENSTOCK_LEVEL_LOCAL : PENSTOCK_LEVEL_WORLD,
                           .sums = sums ? direct->dtypes : 0};
  std::vector<SampleResidence> found;
  for (const auto& [what, name] :
       {std::pair("matrices", "linear0.weight"), std::pair("convolutions", "convolution0.weight"),
        std::pair("vectors", "linear0.bias")}) {
    const auto sample = std::find_if(
        model.begin(), model.end(),
        [of = std::string(name)](const auto& gradient) { return gradient.name == of; });
    const CompressorFacts& facts =
        stages.front().bound_scheme->options(sample->index).front().needs.compressor_facts;
    const bool goes_directly =
        facts.gathers && !in_hosts ? gathers_directly && facts.gathers_pairs : sums;
    found.push_back({what, why_staged(stages, *sample, site), goes_directly});
  }
  return found;
}

}  // namespace penstock
