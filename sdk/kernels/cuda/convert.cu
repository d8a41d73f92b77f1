// Conversions of values; see values.hpp. The arithmetic of one element is that of element/.
#include <kernels/cuda/elements.cuh>
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

template <typename Narrow, typename Widen>
struct TakeNarrow {
  using In = float;
  using Facts = NoFacts;
  float* work;
  uint16_t* target;
  float limit;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ float load(uint64_t i) const { return work[i]; }
  __device__ void store(uint64_t i, float x, NoFacts) const {
    const float floored = x < -limit ? -limit : x;
    const uint16_t bits = Narrow::of(limit < floored ? limit : floored);
    target[i] = bits;
    work[i] = x - Widen::of(bits);
  }
};

template <typename Widen>
struct WidenScaled {
  using In = uint16_t;
  using Facts = NoFacts;
  const uint16_t* source;
  float* target;
  float scale;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ uint16_t load(uint64_t i) const { return source[i]; }
  __device__ void store(uint64_t i, uint16_t bits, NoFacts) const {
    const float x = Widen::of(bits);
    target[i] = scale == 1 ? x : x * scale;
  }
};

// Calls use.template operator()<Narrow, Widen>() with the conversions of a type; returns false for
// one that has not 16 bits.
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

// ---- Narrowing, which puts back what the receiver will see ----

template <ValueType kType>
struct Narrow {
  using In = float;
  using Facts = float;
  using Bits = typename Wire<kType>::Bits;
  float* values;
  Bits* target;
  const float* scale;
  __device__ float facts(uint64_t) const { return wire_scale<kType>(scale); }
  __device__ float load(uint64_t i) const { return values[i]; }
  __device__ void store(uint64_t i, float x, float step) const {
    const Bits bits = Wire<kType>::narrow(x, step);
    target[i] = bits;
    values[i] = Wire<kType>::widen(bits, step);
  }
};

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

__global__ void __launch_bounds__(kWarp) find_int8_scale(const float* largest, float* scale) {
  if (threadIdx.x == 0) *scale = scale_that_reaches(*largest);
}

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

int32_t take_narrow(ValueType type, float* work, uint16_t* target, uint64_t count, float limit,
                    void* stream) noexcept {
  if (count > 0 && (work == nullptr || target == nullptr)) return cudaErrorInvalidValue;
  Queue queue(stream);
  const bool known = with_conversions(type, [&]<typename Narrow, typename Widen>() {
    each_element(queue, TakeNarrow<Narrow, Widen>{work, target, limit}, count);
  });
  return known ? queue.error() : static_cast<int32_t>(cudaErrorInvalidValue);
}

int32_t widen_scaled(ValueType type, const uint16_t* source, float* target, uint64_t count,
                     float scale, void* stream) noexcept {
  if (count > 0 && (source == nullptr || target == nullptr)) return cudaErrorInvalidValue;
  Queue queue(stream);
  const bool known = with_conversions(type, [&]<typename, typename Widen>() {
    each_element(queue, WidenScaled<Widen>{source, target, scale}, count);
  });
  return known ? queue.error() : static_cast<int32_t>(cudaErrorInvalidValue);
}

int32_t int8_scale(const float* largest, float* scale, void* stream) noexcept {
  if (largest == nullptr || scale == nullptr) return cudaErrorInvalidValue;
  Queue queue(stream);
  queue.run<find_int8_scale>(1, kWarp, largest, scale);
  return queue.error();
}

int32_t narrow_values(ValueType type, float* values, uint64_t count, void* target,
                      const float* scale, void* stream) noexcept {
  if (type == ValueType::kInt8 && scale == nullptr) return cudaErrorInvalidValue;
  if (count > 0 && (values == nullptr || target == nullptr)) return cudaErrorInvalidValue;
  Queue queue(stream);
  with_wire_type(type, [&]<ValueType kType>() {
    auto* const bits = static_cast<typename Wire<kType>::Bits*>(target);
    each_element(queue, Narrow<kType>{values, bits, scale}, count);
  });
  return queue.error();
}

int32_t widen_values(ValueType type, const void* source, uint64_t count, float* values,
                     const float* scale, void* stream) noexcept {
  if (type == ValueType::kInt8 && scale == nullptr) return cudaErrorInvalidValue;
  if (count > 0 && (values == nullptr || source == nullptr)) return cudaErrorInvalidValue;
  Queue queue(stream);
  with_wire_type(type, [&]<ValueType kType>() {
    const auto* const bits = static_cast<const typename Wire<kType>::Bits*>(source);
    each_element(queue, Widen<kType>{bits, values, scale}, count);
  });
  return queue.error();
}

}  // namespace penstock::kernels::cuda
