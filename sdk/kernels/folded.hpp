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

}  // namespace penstock::sdk
