// Selection by a threshold that learns, on a device: SteeredSelection (../steered_selection.hpp)
// without work of the host between its passes. A method names the law that it fits.
#pragma once

#include <kernels/cuda/steering.hpp>
#include <methods/device/choice.hpp>

namespace penstock::sdk::device {

using kernels::cuda::SteeringLaw;

// Chooses about band.target entries and updates `state`. The numbers equal the CPU's up to the
// order of sums.
inline void choose_steered(const Choice& all, const SteeringLaw& law,
                           const kernels::cuda::SteeringRules& rules, std::span<float> state) {
  const Choice from = all.compensated();
  auto* const steering = from.own<kernels::cuda::Steering>();
  const uint64_t n = from.n();
  const uint64_t* count = nullptr;
  if (n > 0) {
    from.queue([&](void* stream) {
      return kernels::cuda::estimate(law, rules, from.work(), n, state.data(), steering,
                                     from.workspace(), stream);
    });
    count = from.near(&steering->threshold, rules.band, &steering->reached);
  } else {
    from.largest(0);
  }
  from.queue([&](void* stream) {
    return kernels::cuda::learn(law, rules, count, steering, n, state.data(), stream);
  });
}

}  // namespace penstock::sdk::device
