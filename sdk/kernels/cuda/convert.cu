// Conversions of values; see values.hpp. The arithmetic of one element is that of element/.
#include <kernels/cuda/elements.cuh>
#include <kernels/cuda/values.hpp>
#include <kernels/element/half.hpp>
#include <kernels/element/narrow.hpp>
#include <kernels/narrow_values.hpp>

namespace penstock::kernels::cuda {
namespace {

struct ToHalf {
  __device__ static uint16_t of(float x) {
    return static_cast<uint16_t>(half_bits(std::bit_cast<uint32_t>(x)));
  }
};
struct ToBfloat16 {
  __device__ static uint16_t of(float x) { return bfloat16_bits(std::bit_cast<uint32_t>(x)); }
};
struct FromHalf {
  __device__ static float of(uint16_t bits) { return std::bit_cast<float>(float_bits(bits)); }
};
struct FromBfloat16 {
  __device__ static float of(uint16_t bits) {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

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

struct Copy {
  using In = float;
  using Facts = NoFacts;
  const float* source;
  float* target;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ float load(uint64_t i) const { return source[i]; }
  __device__ void store(uint64_t i, float x, NoFacts) const { target[i] = x; }
};

template <typename Narrow, typename Widen, uint32_t kInfinity>
struct NarrowTo16 {
  using In = float;
  using Facts = NoFacts;
  float* values;
  uint16_t* target;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ float load(uint64_t i) const { return values[i]; }
  __device__ void store(uint64_t i, float x, NoFacts) const {
    const uint16_t bits = finite_bits(Narrow::of(x), kInfinity);
    target[i] = bits;
    values[i] = Widen::of(bits);
  }
};

struct NarrowTo8 {
  using In = float;
  using Facts = float;
  float* values;
  int8_t* target;
  const float* scale;
  __device__ float facts(uint64_t) const { return *scale; }
  __device__ float load(uint64_t i) const { return values[i]; }
  __device__ void store(uint64_t i, float x, float step) const {
    const float code = step == 0 ? 0.0f : int8_code(x, step);
    target[i] = static_cast<int8_t>(code);
    values[i] = step == 0 ? 0.0f : code * step;
  }
};

struct WidenFrom8 {
  using In = int8_t;
  using Facts = float;
  const int8_t* source;
  float* values;
  const float* scale;
  __device__ float facts(uint64_t) const { return *scale; }
  __device__ int8_t load(uint64_t i) const { return source[i]; }
  __device__ void store(uint64_t i, int8_t code, float step) const {
    values[i] = static_cast<float>(code) * step;
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
  queue.run(find_int8_scale, 1, kWarp, largest, scale);
  return queue.error();
}

int32_t narrow_values(ValueType type, float* values, uint64_t count, void* target,
                      const float* scale, void* stream) noexcept {
  if (type == ValueType::kInt8 && scale == nullptr) return cudaErrorInvalidValue;
  if (count > 0 && (values == nullptr || target == nullptr)) return cudaErrorInvalidValue;
  Queue queue(stream);
  auto* const bits = static_cast<uint16_t*>(target);
  if (type == ValueType::kFloat32)
    each_element(queue, Copy{values, static_cast<float*>(target)}, count);
  else if (type == ValueType::kFloat16)
    each_element(queue, NarrowTo16<ToHalf, FromHalf, kHalfInfinity>{values, bits}, count);
  else if (type == ValueType::kBfloat16)
    each_element(queue, NarrowTo16<ToBfloat16, FromBfloat16, kBfloat16Infinity>{values, bits},
                 count);
  else
    each_element(queue, NarrowTo8{values, static_cast<int8_t*>(target), scale}, count);
  return queue.error();
}

int32_t widen_values(ValueType type, const void* source, uint64_t count, float* values,
                     const float* scale, void* stream) noexcept {
  if (type == ValueType::kInt8 && scale == nullptr) return cudaErrorInvalidValue;
  if (count > 0 && (values == nullptr || source == nullptr)) return cudaErrorInvalidValue;
  Queue queue(stream);
  const auto* const bits = static_cast<const uint16_t*>(source);
  if (type == ValueType::kFloat32)
    each_element(queue, Copy{static_cast<const float*>(source), values}, count);
  else if (type == ValueType::kFloat16)
    each_element(queue, Convert<FromHalf, uint16_t, float>{bits, values}, count);
  else if (type == ValueType::kBfloat16)
    each_element(queue, Convert<FromBfloat16, uint16_t, float>{bits, values}, count);
  else
    each_element(queue, WidenFrom8{static_cast<const int8_t*>(source), values, scale}, count);
  return queue.error();
}

}  // namespace penstock::kernels::cuda
