// What a step works with beside its gradients: their learning rates, and the scale of the loss.
#pragma once

#include "core/base/mutex.hpp"
#include "core/bucket/works.hpp"

#include <span>
#include <string>
#include <string_view>

namespace penstock {

// Calls exclude each other. What is set takes effect for buckets that begin later.
class Rates {
 public:
  // Both outlive it.
  Rates(SetContext& set, const Works::Gradients& gradients) : set_(set), gradients_(gradients) {}

  Status set(uint64_t index, double learning_rate);
  Status set_all(std::span<const double> learning_rates);  // NaN: as it was
  Status set_scale(double grad_scale);                     // between two steps

  // All of them, as a rank that has joined is told them, and takes them over.
  std::string facts() const;
  Status take(std::string_view facts);

 private:
  SetContext& set_;
  const Works::Gradients& gradients_;
  mutable Mutex mutex_;
};

}  // namespace penstock
