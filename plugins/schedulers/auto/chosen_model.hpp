// A model in which every gradient has only one candidate.
#pragma once

#include <penstock/scheduler.h>

#include <cstdint>
#include <vector>

namespace automatic {

using Choices = std::vector<uint32_t>;  // by gradient: index into its candidates

// A copy of `model` in which the chosen candidate of each gradient is its only candidate, so that
// code that plans with configured candidates plans with the chosen candidates. `model` must outlive
// the copy.
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
