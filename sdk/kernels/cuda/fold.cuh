// Compensate for one element, on a device, and the choice of a kernel by its form. Internal to the
// CUDA kernels.
#pragma once

#include <penstock/memory.h>
#include <kernels/element/fold_form.hpp>

namespace penstock::kernels::cuda {

// The data that is read for an element. A template argument gives the form, so only the data that
// the form needs is read.
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

// Returns the new work; in.momentum becomes the new momentum.
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
// in a kernel for a form that all threads of a block share. (It is constexpr so that it runs on
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

// Whether a fold has a published form and the arrays that this form needs.
inline bool can_fold(const Fold& fold) {
  const bool has_momentum = fold.form != PENSTOCK_FORM_AFFINE;
  return fold.form != PENSTOCK_FORM_NONE && fold.form <= PENSTOCK_FORM_NESTEROV &&
         fold.grad != nullptr && fold.work != nullptr &&
         (!has_momentum || fold.momentum != nullptr);
}

}  // namespace penstock::kernels::cuda
