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

int32_t int8_scale(const float* largest, float* scale, void* stream) noexcept {
  if (largest == nullptr || scale == nullptr) return cudaErrorInvalidValue;
  Queue queue(stream);
  queue.run(find_int8_scale, 1, kWarp, largest, scale);
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
