// Compensate for one element, on a device, and the choice of a kernel by its form. Internal to the
// CUDA kernels.
#pragma once

#include <penstock/memory.h>
#include <kernels/element/fold_form.hpp>

namespace penstock::kernels::cuda {

// What is read of an element: only what the form needs, for a template argument decides.
struct FoldInput {
  float work;
  float grad;
  float momentum;
};

template <uint32_t kForm>
__device__ FoldInput load_fold(const Fold& fold, uint64_t i) {
  FoldInput in{fold.work_from()[i], fold.grad[i], 0};
  if constexpr (kForm != PENSTOCK_FORM_AFFINE) in.momentum = fold.momentum_from()[i];
  return in;
}

// What work becomes; in.momentum becomes the new momentum.
template <uint32_t kForm>
__device__ float apply_fold(const Fold& fold, FoldInput& in) {
  if constexpr (kForm == PENSTOCK_FORM_AFFINE)
    return affine(fold, in.work, in.grad);
  else if constexpr (kForm == PENSTOCK_FORM_HEAVY_BALL)
    return heavy_ball(fold, in.work, in.grad, in.momentum);
  else
    return nesterov(fold, in.work, in.grad, in.momentum);
}

template <uint32_t kForm>
__device__ void store_fold(const Fold& fold, uint64_t i, float work, const FoldInput& in) {
  fold.work[i] = work;
  if constexpr (kForm != PENSTOCK_FORM_AFFINE) fold.momentum[i] = in.momentum;
}

// Calls use.template operator()<kForm>() with the form of a fold: on the host to choose a kernel,
// in a kernel for a form that all threads of a block have in common. (constexpr, so that it runs in
// both.)
template <typename Use>
constexpr void with_form(uint32_t form, Use&& use) {
  if (form == PENSTOCK_FORM_AFFINE)
    use.template operator()<PENSTOCK_FORM_AFFINE>();
  else if (form == PENSTOCK_FORM_HEAVY_BALL)
    use.template operator()<PENSTOCK_FORM_HEAVY_BALL>();
  else if (form == PENSTOCK_FORM_NESTEROV)
    use.template operator()<PENSTOCK_FORM_NESTEROV>();
  else
    use.template operator()<PENSTOCK_FORM_NONE>();
}

// Whether a fold is one of the published forms with the arrays it needs.
inline bool can_fold(const Fold& fold) {
  const bool has_momentum = fold.form != PENSTOCK_FORM_AFFINE;
  return fold.form != PENSTOCK_FORM_NONE && fold.form <= PENSTOCK_FORM_NESTEROV &&
         fold.grad != nullptr && fold.work != nullptr &&
         (!has_momentum || fold.momentum != nullptr);
}

}  // namespace penstock::kernels::cuda
