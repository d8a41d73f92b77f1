#include "core/fit/sample_traffic.hpp"

#include "core/fit/item.hpp"
#include "core/fit/resolve.hpp"
#include "core/tensor/dtype.hpp"

namespace penstock {

namespace {

constexpr int kLayersOfAShape = 16;

std::vector<Gradient> usual_model() {
  std::vector<Gradient> model;
  const auto add = [&](std::string name, std::vector<int64_t> shape) {
    Gradient& gradient = model.emplace_back();
    gradient.name = std::move(name);
    gradient.index = model.size() - 1;
    gradient.shape = std::move(shape);
    gradient.numel = 1;
    for (const int64_t extent : gradient.shape) gradient.numel *= static_cast<uint64_t>(extent);
  };
  for (int i = 0; i < kLayersOfAShape; ++i) {
    add(fmt::format("linear{}.weight", i), {1024, 1024});
    add(fmt::format("linear{}.bias", i), {1024});
    add(fmt::format("convolution{}.weight", i), {256, 256, 3, 3});
    add(fmt::format("convolution{}.bias", i), {256});
  }
  return model;
}

// The collectives of a scheme, as far as they can be made here: where not, usual formulas count.
struct SchemeCarriers {
  std::unique_ptr<CollectiveInstance> transport, composite;
  Carriers carriers;

  SchemeCarriers(const Scheme& scheme, Registry& registry) {
    const auto make = [&](const std::string& name) -> std::unique_ptr<CollectiveInstance> {
      auto made = make_instance<penstock_collective>(scheme, name, registry);
      return made.ok() ? std::move(made.value()) : nullptr;
    };
    const bool composes = !scheme.transport.empty();
    transport = make(composes ? scheme.transport : scheme.collective);
    if (composes) composite = make(scheme.collective);
    if (transport != nullptr) {
      carriers.transport = transport->table();
      carriers.transport_instance = transport->self();
    }
    if (composite != nullptr) {
      carriers.composite = composite->table();
      carriers.composite_instance = composite->self();
    }
  }
};

Result<SampleTraffic> traffic_of_stage(const Scheme& scheme, const std::vector<Gradient>& model,
                                       Registry& registry, uint32_t ranks) {
  SampleTraffic traffic;
  for (const Gradient& gradient : model) {
    const Choice choice =
        scheme.choose({gradient.name, gradient.shape.size(), gradient.numel, gradient.dtype});
    PENSTOCK_ASSIGN(const auto compressor,
                    make_instance<penstock_compressor>(scheme, choice.compressor, registry));
    PENSTOCK_ASSIGN(const auto memory,
                    make_instance<penstock_memory>(scheme, choice.memory, registry));
    TemplateItem item(gradient, {gradient.index, 0, gradient.numel, 0});
    PENSTOCK_ASSIGN(const ItemNeeds needs, plan_template(item, *compressor, *memory, ranks));
    traffic.bytes += needs.planned;
    traffic.gradient_bytes += double(gradient.numel) * double(dtype_bytes(gradient.dtype));
  }
  const SchemeCarriers by(scheme, registry);
  traffic.moved = by.carriers.moved(traffic.bytes, ranks);
  traffic.dense_moved = by.carriers.dense(traffic.gradient_bytes, ranks);
  traffic.loses_from = by.carriers.loses_from(traffic.bytes, traffic.gradient_bytes);
  return traffic;
}

}  // namespace

Result<std::vector<SampleTraffic>> sample_traffic(const Config& config, Registry& registry,
                                                  uint32_t ranks) {
  const std::vector<Gradient> model = usual_model();
  std::vector<SampleTraffic> stages;
  for (const uint64_t stage : config.stages()) {
    PENSTOCK_ASSIGN(SampleTraffic traffic,
                    traffic_of_stage(config.at_step(stage), model, registry, ranks));
    traffic.from_step = stage;
    stages.push_back(traffic);
  }
  return stages;
}

}  // namespace penstock
