#include "core/fit/sample_residence.hpp"

#include "core/fit/residence.hpp"
#include "core/fit/usual_model.hpp"

#include <algorithm>

namespace penstock {

Result<std::vector<SampleResidence>> sample_residence(const Config& config, Registry& registry) {
  constexpr uint32_t kRanks = 2;
  const std::vector<DeclaredGradient> model = usual_model();
  std::vector<const DeclaredGradient*> gradients;
  for (const DeclaredGradient& gradient : model) gradients.push_back(&gradient);
  std::vector<Stage> stages;
  for (const uint64_t step : config.stages()) {
    const Scheme scheme = config.at_step(step);
    PENSTOCK_ASSIGN(auto fitting, Fitting::make(scheme, choose(scheme, gradients), registry,
                                                {.world = kRanks, .forward_waits = true}));
    stages.push_back({step, std::move(fitting)});
  }
  const ResidenceSite site{.forward_waits = true,
                           .sends_directly = !config.at_step(0).device_transport.empty()};
  std::vector<SampleResidence> found;
  for (const auto& [what, name] :
       {std::pair("matrices", "linear0.weight"), std::pair("convolutions", "convolution0.weight"),
        std::pair("vectors", "linear0.bias")}) {
    const auto sample = std::find_if(
        model.begin(), model.end(),
        [of = std::string(name)](const auto& gradient) { return gradient.name == of; });
    const CompressorFacts& facts =
        stages.front().fitting->options(sample->index).front().needs.compressor_facts;
    found.push_back({what, why_staged(stages, *sample, site),
                     site.sends_directly && (!facts.gathers || facts.gathers_pairs)});
  }
  return found;
}

}  // namespace penstock
