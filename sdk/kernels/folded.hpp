// A fold as the core hands it over (fold.h), as the kernels want it (fold.hpp).
#pragma once

#include <penstock/fold.h>
#include <kernels/fold.hpp>
#include <penstock/views.hpp>

namespace penstock::sdk {

inline kernels::Fold fold_of(const penstock_fold& fold, const Item& item, const Call& call) {
  const bool has_momentum = fold.form != PENSTOCK_FORM_AFFINE;
  if (fold.form == PENSTOCK_FORM_NONE || fold.form > PENSTOCK_FORM_NESTEROV ||
      has_momentum != (fold.momentum != nullptr))
    throw internal("form ", fold.form, " of gradient '", item.name(),
                   "' is none that can be folded, or its momentum is missing");
  return {fold.form,
          static_cast<float>(fold.beta),
          static_cast<float>(fold.gamma),
          static_cast<float>(1 / call.step->grad_scale),
          item.grad().data(),
          item.work().data(),
          has_momentum ? elements<float>(*fold.momentum).data() : nullptr};
}

// The fold of item i, made in `room`; null where there is none to make.
inline const kernels::Fold* fold_at(const penstock_fold* const* folds, uint64_t i, const Item& item,
                                    const Call& call, kernels::Fold& room) {
  if (folds == nullptr || folds[i] == nullptr) return nullptr;
  room = fold_of(*folds[i], item, call);
  return &room;
}

inline constexpr uint32_t kAllFolds =
    PENSTOCK_FOLD_AFFINE | PENSTOCK_FOLD_HEAVY_BALL | PENSTOCK_FOLD_NESTEROV;

}  // namespace penstock::sdk
