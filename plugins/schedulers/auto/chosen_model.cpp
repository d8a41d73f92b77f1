#include "chosen_model.hpp"

#include <algorithm>
#include <cstring>

namespace automatic {

namespace {

// Copies a struct of the host. An older host has a shorter struct; its missing fields are zero and
// not counted in struct_size.
template <typename Struct>
Struct copy_of(const Struct& from) {
  Struct copy{};
  std::memcpy(&copy, &from, std::min<uint64_t>(sizeof copy, from.struct_size));
  copy.struct_size = std::min<uint64_t>(sizeof copy, from.struct_size);
  return copy;
}

}  // namespace

ChosenModel::ChosenModel(const penstock_model& model, const Choices& choices)
    : model_(copy_of(model)) {
  for (uint64_t i = 0; i < model.n_gradients; ++i) {
    gradients_.push_back(copy_of(*model.gradients[i]));
    gradients_.back().candidates += choices[i];
    gradients_.back().n_candidates = 1;
  }
  for (const penstock_gradient_model& gradient : gradients_) pointers_.push_back(&gradient);
  model_.gradients = pointers_.data();
}

}  // namespace automatic
