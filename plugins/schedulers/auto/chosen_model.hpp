// A model in which every gradient has been given one of its candidates.
#pragma once

#include <penstock/scheduler.h>

#include <cstdint>
#include <vector>

namespace automatic {

using Choices = std::vector<uint32_t>;  // by gradient: index into its candidates

// Looks like `model`, but the chosen candidate of each gradient is its only one, so that all that
// plans with configured candidates plans with the chosen ones. `model` must outlive it.
class ChosenModel {
 public:
  ChosenModel(const penstock_model& model, const Choices& choices);
  ChosenModel(const ChosenModel&) = delete;
  ChosenModel& operator=(const ChosenModel&) = delete;
  const penstock_model& model() const { return model_; }

 private:
  penstock_model model_{};
  std::vector<penstock_gradient_model> gradients_;
  std::vector<const penstock_gradient_model*> pointers_;
};

}  // namespace automatic
