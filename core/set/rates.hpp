// The numbers that a step uses beside its gradients: their learning rates, and the scale of the
// loss.
#pragma once

#include "core/base/mutex.hpp"
#include "core/bucket/compiled_plan.hpp"

#include <span>
#include <string>
#include <string_view>

namespace penstock {

// A lock excludes concurrent calls. A new value takes effect for buckets that begin later.
class Rates {
 public:
  // The arguments must outlive the object.
  Rates(SetContext& set, const CompiledPlan::Gradients& gradients)
      : set_(set), gradients_(gradients) {}

  Status set(uint64_t index, double learning_rate);
  Status set_all(std::span<const double> learning_rates);  // NaN: unchanged
  Status set_scale(double grad_scale);                     // between two steps

  // facts() returns all rates and the scale as bytes; a joined rank receives them and calls take().
  std::string facts() const;
  Status take(std::string_view facts);

 private:
  SetContext& set_;
  const CompiledPlan::Gradients& gradients_;
  mutable Mutex mutex_;
};

}  // namespace penstock
