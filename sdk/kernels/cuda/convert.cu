// Conversions of values; see values.hpp. The arithmetic of one element is in element/.
#include <kernels/cuda/elements.cuh>
#include <kernels/cuda/fold.cuh>
#include <kernels/cuda/values.hpp>
#include <kernels/cuda/wire.cuh>

namespace penstock::kernels::cuda {
namespace {

template <typename As, typename From, typename To>
struct Convert {
  using In = From;
  using Facts = NoFacts;
  const From* source;
  To* target;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ From load(uint64_t i) const { return source[i]; }
  __device__ void store(uint64_t i, From x, NoFacts) const { target[i] = As::of(x); }
};

template <typename As, typename From, typename To>
int32_t convert(const From* source, To* target, uint64_t count, void* stream) {
  if (count > 0 && (source == nullptr || target == nullptr)) return cudaErrorInvalidValue;
  Queue queue(stream);
  each_element(queue, Convert<As, From, To>{source, target}, count);
  return queue.error();
}

// ---- Casts that are summed on the way ----

// Compensates an element unless the form is NONE, then rounds it, in one sweep.
template <typename Narrow, typename Widen, uint32_t kForm>
struct TakeNarrow {
  using In = FoldInput;
  Fold fold;
  uint16_t* target;
  float limit;
  bool keeps;
  __device__ In load(uint64_t i) const {
    if constexpr (kForm == PENSTOCK_FORM_NONE)
      return {fold.work[i], 0, 0};
    else
      return load_fold<kForm>(fold, i);
  }
  __device__ void store(uint64_t i, In in, NoFacts) const {
    float x = in.work;
    if constexpr (kForm != PENSTOCK_FORM_NONE) x = apply_fold<kForm>(fold, in);
    if constexpr (kForm != PENSTOCK_FORM_NONE && kForm != PENSTOCK_FORM_AFFINE)
      fold.momentum[i] = in.momentum;
    const float floored = x < -limit ? -limit : x;
    const uint16_t bits = Narrow::of(!keeps ? x : limit < floored ? limit : floored);
    target[i] = bits;
    if (keeps) fold.work[i] = x - Widen::of(bits);
  }
};

// TakeNarrow for a form that is known only on the device.
template <typename Narrow, typename Widen>
struct TakeNarrowOf {
  Fold fold;
  uint16_t* target;
  float limit;
  bool keeps;
  template <typename Use>
  __device__ void as(const Use& use) const {
    with_form(fold.form, [&]<uint32_t kForm>() {
      use(TakeNarrow<Narrow, Widen, kForm>{fold, target, limit, keeps});
    });
  }
};

template <typename Widen>
struct WidenScaled {
  using In = uint16_t;
  const uint16_t* source;
  float* target;
  float scale;
  template <typename Use>
  __device__ void as(const Use& use) const {
    use(*this);
  }
  __device__ uint16_t load(uint64_t i) const { return source[i]; }
  __device__ void store(uint64_t i, uint16_t bits, NoFacts) const {
    const float x = Widen::of(bits);
    target[i] = scale == 1 ? x : x * scale;
  }
};

bool legal(const NarrowRequest& request) {
  if (request.count > 0 && (request.fold.work == nullptr || request.target == nullptr))
    return false;
  return request.fold.form == PENSTOCK_FORM_NONE || (request.keeps && can_fold(request.fold));
}
bool legal(const WidenRequest& request) {
  return request.count == 0 || (request.source != nullptr && request.target != nullptr);
}

// Calls use.template operator()<Narrow, Widen>() with the conversions of a type; returns false if
// the type does not have 16 bits.
template <typename Use>
bool with_conversions(ValueType type, Use&& use) {
  if (type == ValueType::kFloat16)
    use.template operator()<ToHalf, FromHalf>();
  else if (type == ValueType::kBfloat16)
    use.template operator()<ToBfloat16, FromBfloat16>();
  else
    return false;
  return true;
}

template <ValueType kType>
struct Widen {
  using In = typename Wire<kType>::Bits;
  using Facts = float;
  const In* source;
  float* values;
  const float* scale;
  __device__ float facts(uint64_t) const { return wire_scale<kType>(scale); }
  __device__ In load(uint64_t i) const { return source[i]; }
  __device__ void store(uint64_t i, In bits, float step) const {
    values[i] = Wire<kType>::widen(bits, step);
  }
};

}  // namespace

int32_t floats_to_halves(const float* source, uint16_t* target, uint64_t count,
                         void* stream) noexcept {
  return convert<ToHalf>(source, target, count, stream);
}
int32_t halves_to_floats(const uint16_t* source, float* target, uint64_t count,
                         void* stream) noexcept {
  return convert<FromHalf>(source, target, count, stream);
}
int32_t floats_to_bfloat16s(const float* source, uint16_t* target, uint64_t count,
                            void* stream) noexcept {
  return convert<ToBfloat16>(source, target, count, stream);
}
int32_t bfloat16s_to_floats(const uint16_t* source, float* target, uint64_t count,
                            void* stream) noexcept {
  return convert<FromBfloat16>(source, target, count, stream);
}

int32_t take_narrow(ValueType type, std::span<const NarrowRequest> requests, float limit,
                    void* stream) noexcept {
  for (const NarrowRequest& request : requests)
    if (!legal(request)) return cudaErrorInvalidValue;
  Queue queue(stream);
  const bool known = with_conversions(type, [&]<typename Narrow, typename Widen>() {
    using Body = TakeNarrowOf<Narrow, Widen>;
    each_element_of<Body>(queue, requests, [limit](const NarrowRequest& of) {
      return Body{of.fold, of.target, limit, of.keeps};
    });
  });
  return known ? queue.error() : static_cast<int32_t>(cudaErrorInvalidValue);
}

int32_t widen_scaled(ValueType type, std::span<const WidenRequest> requests, float scale,
                     void* stream) noexcept {
  for (const WidenRequest& request : requests)
    if (!legal(request)) return cudaErrorInvalidValue;
  Queue queue(stream);
  const bool known = with_conversions(type, [&]<typename, typename Widen>() {
    using Body = WidenScaled<Widen>;
    each_element_of<Body>(queue, requests, [scale](const WidenRequest& of) {
      return Body{of.source, of.target, scale};
    });
  });
  return known ? queue.error() : static_cast<int32_t>(cudaErrorInvalidValue);
}

int32_t widen_values(ValueType type, const void* source, uint64_t count, float* values,
                     const float* scale, void* stream) noexcept {
  if (has_scale(type) && scale == nullptr) return cudaErrorInvalidValue;
  if (count > 0 && (values == nullptr || source == nullptr)) return cudaErrorInvalidValue;
  Queue queue(stream);
  with_wire_type(type, [&]<ValueType kType>() {
    const auto* const bits = static_cast<const typename Wire<kType>::Bits*>(source);
    each_element(queue, Widen<kType>{bits, values, scale}, count);
  });
  return queue.error();
}

}  // namespace penstock::kernels::cuda
