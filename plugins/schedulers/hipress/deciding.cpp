#include "deciding.hpp"

#include <algorithm>

#include <planning/cost.hpp>

namespace hipress {

namespace planning = penstock::planning;

namespace {

// The number of elements of a gradient that a cut may not divide; at least one.
uint64_t unit_of(const penstock_gradient_model& gradient, uint32_t choice) {
  return std::max<uint64_t>(gradient.candidates[choice]->part_alignment, 1);
}

uint64_t units_of(const penstock_gradient_model& gradient, uint32_t choice) {
  const uint64_t unit = unit_of(gradient, choice);
  return gradient.numel / unit + (gradient.numel % unit == 0 ? 0 : 1);
}

}  // namespace

uint64_t most_parts(const penstock_gradient_model& gradient, uint32_t choice, uint64_t most) {
  if (gradient.candidates[choice]->part_alignment == 0) return 1;
  return std::clamp<uint64_t>(units_of(gradient, choice), 1, most);
}

std::vector<uint64_t> cuts(const penstock_gradient_model& gradient, uint32_t choice,
                           uint64_t parts) {
  const uint64_t units = units_of(gradient, choice);
  std::vector<uint64_t> firsts;
  for (uint64_t part = 0; part < parts; ++part)
    firsts.push_back((units / parts * part + std::min(part, units % parts)) *
                     unit_of(gradient, choice));
  firsts.push_back(gradient.numel);
  return firsts;
}

double time_of(const penstock_model& model, uint64_t gradient, uint32_t choice, uint64_t parts) {
  const penstock_gradient_model& facts = *model.gradients[gradient];
  const penstock_candidate& candidate = *facts.candidates[choice];
  const double share = 1.0 / static_cast<double>(parts);
  const double elements = static_cast<double>(facts.numel) * share;
  const double encode = planning::usable(candidate.encode_fixed_us) +
                        planning::usable(candidate.encode_per_element_us) * elements;
  const double decode = planning::usable(candidate.decode_fixed_us) +
                        planning::usable(candidate.decode_per_element_us) * elements;
  double time = 0;
  for (uint32_t phase = 0; phase < model.period; ++phase) {
    if (candidate.phase_bytes[phase] == 0) continue;
    planning::Volume volume;
    planning::add_payload(volume, candidate, phase, share);
    const double exchange = planning::exchange_us(model, volume);
    time += encode + exchange + decode +
            static_cast<double>(parts - 1) * std::max(encode + decode, exchange);
  }
  return time;
}

Decision decide(const penstock_model& model, uint64_t gradient, uint32_t choice, uint64_t most) {
  Decision best{choice, 1, time_of(model, gradient, choice, 1)};
  const uint64_t limit = most_parts(*model.gradients[gradient], choice, most);
  for (uint64_t parts = 2; parts <= limit; ++parts) {
    const double time = time_of(model, gradient, choice, parts);
    if (time < best.time_us) best = {choice, parts, time};
  }
  return best;
}

}  // namespace hipress
