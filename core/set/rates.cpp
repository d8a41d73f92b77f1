#include "core/set/rates.hpp"

#include "core/base/bytes.hpp"

#include <cmath>

namespace penstock {

Status Rates::set(uint64_t index, double learning_rate) {
  const Lock lock(mutex_);
  if (index >= gradients_.size())
    return invalid_argument("set '{}' has no gradient {}", set_.name, index);
  gradients_[index]->learning_rate = learning_rate;
  return {};
}

Status Rates::set_all(std::span<const double> learning_rates) {
  const Lock lock(mutex_);
  if (learning_rates.size() != gradients_.size())
    return invalid_argument("set '{}' has {} gradients and was given {} learning rates", set_.name,
                            gradients_.size(), learning_rates.size());
  for (size_t i = 0; i < learning_rates.size(); ++i)
    if (!std::isnan(learning_rates[i])) gradients_[i]->learning_rate = learning_rates[i];
  return {};
}

Status Rates::set_scale(double grad_scale) {
  const Lock lock(mutex_);
  if (!(grad_scale > 0))
    return invalid_argument("grad_scale is {}, expected a number above 0", grad_scale);
  set_.step.grad_scale = grad_scale;
  return {};
}

std::string Rates::facts() const {
  const Lock lock(mutex_);
  std::string facts;
  ByteWriter writer(facts);
  writer.put(set_.step.grad_scale);
  for (const auto& gradient : gradients_) writer.put(gradient->learning_rate);
  return facts;
}

Status Rates::take(std::string_view facts) {
  const Lock lock(mutex_);
  ByteReader reader(facts);
  set_.step.grad_scale = reader.get<double>();
  for (const auto& gradient : gradients_) gradient->learning_rate = reader.get<double>();
  if (reader.at_end()) return {};
  return invalid_payload("set '{}', step {}: {} bytes do not hold the rates of {} gradients",
                         set_.name, set_.step.index, facts.size(), gradients_.size());
}

}  // namespace penstock
