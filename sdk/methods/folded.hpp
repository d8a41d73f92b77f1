// Converts a fold from the form in which the core passes it (fold.h) to the form that the kernels
// take (fold.hpp); and the encode loop of a compressor that folds.
#pragma once

#include <penstock/compressor.hpp>

#include <kernels/fold.hpp>

namespace penstock::sdk {

// The value for traits.folds: the kernels implement every form.
inline constexpr uint32_t kAllFolds =
    PENSTOCK_FOLD_AFFINE | PENSTOCK_FOLD_HEAVY_BALL | PENSTOCK_FOLD_NESTEROV;

inline kernels::Fold fold_of(const penstock_fold& fold, const Item& item, const Call& call) {
  const bool has_momentum = fold.form != PENSTOCK_FORM_AFFINE;
  // In hosts before ABI 0.9 the struct ends before these two members.
  const bool tells_before = fold.struct_size >= sizeof(penstock_fold);
  const penstock_tensor* work_before = tells_before ? fold.work_before : nullptr;
  const penstock_tensor* momentum_before = tells_before ? fold.momentum_before : nullptr;
  if (fold.form == PENSTOCK_FORM_NONE || fold.form > PENSTOCK_FORM_NESTEROV ||
      has_momentum != (fold.momentum != nullptr) ||
      (has_momentum && (work_before != nullptr) != (momentum_before != nullptr)))
    throw internal("form ", fold.form, " of gradient '", item.name(),
                   "' cannot be folded, or its momentum is missing");
  return {fold.form,
          static_cast<float>(fold.beta),
          static_cast<float>(fold.gamma),
          static_cast<float>(1 / call.step->grad_scale),
          item.grad().data(),
          item.work().data(),
          has_momentum ? elements<float>(*fold.momentum).data() : nullptr,
          work_before != nullptr ? elements<float>(*work_before).data() : nullptr,
          momentum_before != nullptr ? elements<float>(*momentum_before).data() : nullptr};
}

// Whether the work that `fold` has compensated is finite, as far as it was compensated.
inline bool found_finite(const kernels::Fold* fold) {
  return fold == nullptr || fold->is_finite == nullptr || *fold->is_finite;
}

// Calls encode(item, payload, fold) for every item of a call. encode must apply `fold` to work
// first, or in its sweep over work; `fold` is null if work is compensated already. `folds` is null
// for a call without any fold. The payload of an item is absent if its compensated work is not
// finite. A method whose encode accepts such work may declare
//     static constexpr bool kInspects = true;
// and then the core saves its own inspection ("penstock.fold/3" in fold.h).
template <typename Encode>
void encode_each(const Call& call, const Items& items, PayloadWriters& payloads,
                 const penstock_fold* const* folds, Encode&& encode) {
  for (uint64_t i = 0; i < items.size(); ++i) {
    PayloadWriter payload = payloads[i];
    if (folds == nullptr || folds[i] == nullptr) {
      encode(items[i], payload, nullptr);
    } else {
      kernels::Fold fold = fold_of(*folds[i], items[i], call);
      bool is_finite = true;
      fold.is_finite = &is_finite;
      encode(items[i], payload, &fold);
      if (!is_finite) payload.absent();
    }
  }
}

// Makes both entry points of a compressor that encodes item by item and may fold, from one
// function of the method:
//   class Method : public FoldingEncoder<Method> {
//     void encode_item(const Call& call, const Item& item, PayloadWriter& payload,
//                      const kernels::Fold* fold);
template <typename Method>
class FoldingEncoder {
 public:
  void encode(const Call& call, const Items& items, PayloadWriters& payloads) {
    static_cast<Method&>(*this).encode_folded(call, items, payloads, nullptr);
  }
  void encode_folded(const Call& call, const Items& items, PayloadWriters& payloads,
                     const penstock_fold* const* folds) {
    encode_each(call, items, payloads, folds,
                [&](const Item& item, PayloadWriter& payload, const kernels::Fold* fold) {
                  static_cast<Method&>(*this).encode_item(call, item, payload, fold);
                });
  }
};

}  // namespace penstock::sdk
