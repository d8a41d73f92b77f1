// The base of methods whose payloads are numbers that the transport sums, and that send some
// gradients uncompressed. A method defines which gradients it codes, and how:
//
//   class Method : public sdk::SummedCompressor<Method> {
//    public:
//     void plan(...);                                    // plan_dense for items that are not coded
//     bool coded(const Item& item) const;
//     uint64_t entries(uint32_t phase, uint32_t round, const Item& item) const;  // of a coded item
//     void encode_coded(const Call&, const Item&, std::span<float> sent, const kernels::Fold*);
//     void decode_coded(const Call&, const Item&, std::span<const float> sum);
//     static constexpr bool kFolds = true;  // encode_coded first applies the fold that it gets;
//                                           // without kFolds the fold is always null
//   };
//
// `sum` has `entries` numbers, or no numbers if no rank has sent any, which counts as zeros;
// decode_coded must multiply its result by call.result_scale(). encode_coded and decode_coded are
// [step]; a sum of another size is refused with INVALID_PAYLOAD. A method whose coded items may
// travel in another type than float32 defines encode_payload, decode_payload and check_sum instead
// (low_rank.hpp). If the device kernels are linked (device/), uncompressed gradients work on
// devices too; a method whose coded gradients also work there declares it in its traits.
#pragma once

#include <methods/agreed.hpp>
#include <methods/device/summed.hpp>
#include <methods/folded.hpp>

#include <algorithm>

namespace penstock::sdk {

inline void clear(std::span<float> values) {
  std::fill(values.begin(), values.end(), 0.0f);
}

// out = scale * values.
inline void copy_scaled(std::span<const float> values, float scale, std::span<float> out) {
  for (uint64_t i = 0; i < out.size(); ++i) out[i] = values[i] * scale;
}

template <typename Method>
class SummedCompressor : public FoldingEncoder<Method> {
 public:
  static constexpr bool kFolds = false;
  static constexpr bool kScalesResult = true;

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
    traits.folds = Method::kFolds ? kAllFolds : 0;
  }

  void encode_item(const Call& call, const Item& item, PayloadWriter& payload,
                   const kernels::Fold* fold) {
    const bool coded = method().coded(item);
    if (coded)
      method().encode_payload(call, item, payload, fold);
    else
      encode_dense(call, item, payload.room<float>(0), fold);
    payload.kind(coded ? PENSTOCK_PAYLOAD_CODED : PENSTOCK_PAYLOAD_DENSE);
    payload.count(0, entries_of(call, item));
  }

  void decode(const Call& call, const Items& items, const PayloadReaders& payloads) {
    for (uint64_t i = 0; i < items.size(); ++i)  // all sizes before any state changes
      check(call, items[i], payloads.at(i, 0));
    for (uint64_t i = 0; i < items.size(); ++i) {
      if (method().coded(items[i]))
        method().decode_payload(call, items[i], payloads.at(i, 0));
      else
        decode_dense(call, items[i], floats_of(payloads.at(i, 0)));
    }
  }

  // ---- Coded items, in float32 ----

  void encode_payload(const Call& call, const Item& item, const PayloadWriter& payload,
                      const kernels::Fold* fold) {
    method().encode_coded(call, item, payload.room<float>(0), fold);
  }
  // The size of the sum has been checked.
  void decode_payload(const Call& call, const Item& item, const PayloadReader& payload) {
    method().decode_coded(call, item, floats_of(payload));
  }
  // Throws INVALID_PAYLOAD unless the sum has `expected` entries.
  void check_sum(const PayloadReader& payload, uint64_t expected) const {
    (void)payload.section<float>(0, expected);
  }

 protected:
  // Kernels of `family` run with the agreed instruction set and the host's workers.
  explicit SummedCompressor(std::string_view family) : on_(agreed_execution(family)) {}

  static void plan_dense(const Item& item, CompressorNeed& need) {
    need.round(PENSTOCK_COMBINE_SUM)
        .section(PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, item.numel(), true,
                 PENSTOCK_SPLIT_BY_ELEMENT);
    // `coded` may differ between a part of a matrix and the whole, so only vectors may be cut.
    need.part_alignment = item.n_dims() < 2 ? 1 : 0;
    need.flags = PENSTOCK_NEED_LOSSLESS | PENSTOCK_NEED_LINEAR;
  }

  const kernels::Execution& on() const { return on_; }

 private:
  Method& method() { return static_cast<Method&>(*this); }

  uint64_t entries_of(const Call& call, const Item& item) {
    return method().coded(item) ? method().entries(call.step->phase, call.round, item)
                                : item.numel();
  }
  void check(const Call& call, const Item& item, const PayloadReader& payload) {
    if (payload.absent()) return;
    if (method().coded(item))
      method().check_sum(payload, entries_of(call, item));
    else
      (void)payload.section<float>(0, item.numel());
  }
  static std::span<const float> floats_of(const PayloadReader& payload) {
    return payload.absent() ? std::span<const float>() : payload.section<float>(0);
  }

  void encode_dense(const Call& call, const Item& item, std::span<float> sent,
                    const kernels::Fold* fold) const {
    if constexpr (device::kHasKernels)
      if (call.on_device()) return device::send_all(call, item, sent, fold);
    const std::span<float> work = item.work();
    if (fold != nullptr) kernels::compensate(*fold, work.size(), on_.path);
    std::copy(work.begin(), work.end(), sent.begin());
    if (item.keeps()) clear(work);  // every element is sent
  }

  static void decode_dense(const Call& call, const Item& item, std::span<const float> sum) {
    const std::span<float> out = item.out();
    if constexpr (device::kHasKernels)
      if (call.on_device())
        return sum.empty() ? device::clear_floats(call, item, out)
                           : device::copy_scaled(call, item, sum, call.result_scale(), out);
    if (sum.empty())
      clear(out);
    else
      copy_scaled(sum, call.result_scale(), out);
  }

  kernels::Execution on_;
};

}  // namespace penstock::sdk
