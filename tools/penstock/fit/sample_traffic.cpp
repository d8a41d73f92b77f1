#include "tools/penstock/fit/sample_traffic.hpp"

#include "core/fit/bound_scheme.hpp"
#include "core/fit/resolve.hpp"
#include "tools/penstock/fit/usual_model.hpp"

namespace penstock {

namespace {

// The collectives of a scheme. For a collective that cannot be made here, usual formulas count.
struct SchemeCarriers {
  std::vector<std::unique_ptr<CollectiveInstance>> made;
  Carriers carriers;

  SchemeCarriers(const Scheme& scheme, Registry& registry) {
    const auto make = [&](const std::string& name) -> Carrier {
      auto instance = make_instance<penstock_collective>(scheme, name, registry);
      if (!instance.ok()) return {};
      made.push_back(std::move(instance.value()));
      return {made.back()->table(), made.back()->self()};
    };
    const bool composes = !scheme.transport.empty();
    carriers.world = make(composes ? scheme.transport : scheme.collective);
    if (composes) carriers.composite = make(scheme.collective);
    carriers.local = scheme.local_transport.empty() ? carriers.world : make(scheme.local_transport);
    carriers.cross = scheme.cross_transport.empty() ? carriers.world : make(scheme.cross_transport);
  }
};

}  // namespace

Result<std::vector<StageTraffic>> sample_traffic(const Config& config, Registry& registry,
                                                 uint32_t ranks, uint32_t ranks_per_host) {
  const std::vector<DeclaredGradient> model = usual_model();
  std::vector<const DeclaredGradient*> gradients;
  for (const DeclaredGradient& gradient : model) gradients.push_back(&gradient);
  std::vector<StageTraffic> stages;
  for (const uint64_t stage : config.stages()) {
    const Scheme scheme = config.at_step(stage);
    PENSTOCK_ASSIGN(
        const auto bound_scheme,
        BoundScheme::make(scheme, choose(scheme, gradients), registry,
                          {.world = ranks, .connects_devices = !scheme.device_transport.empty()}));
    SchemeCarriers by(scheme, registry);
    by.carriers.ranks_per_host = ranks_per_host;
    stages.push_back(bound_scheme->traffic(by.carriers, stage));
  }
  return stages;
}

}  // namespace penstock
