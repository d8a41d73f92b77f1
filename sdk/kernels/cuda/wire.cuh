// One value in the type in which it travels, on a device: the arithmetic of element/. Internal to
// the CUDA kernels.
//
//   using Bits = ...;                                     the type that travels
//   static Bits narrow(float x, float scale);             nearest even, finite
//   static float widen(Bits bits, float scale);           the receiver's value
// `scale` is the scale of int8, or the power of two of float16; other types ignore it.
#pragma once

#include <cuda_runtime.h>
#include <kernels/element/half.hpp>
#include <kernels/element/narrow.hpp>
#include <kernels/narrow_values.hpp>

namespace penstock::kernels::cuda {

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

template <ValueType kType>
struct Wire;

template <>
struct Wire<ValueType::kFloat32> {
  using Bits = float;
  __device__ static float narrow(float x, float) { return x; }
  __device__ static float widen(float x, float) { return x; }
};

template <>
struct Wire<ValueType::kFloat16> {
  using Bits = uint16_t;
  __device__ static uint16_t narrow(float x, float scale) {
    return finite_bits(ToHalf::of(x * inverse_power(scale)), kHalfInfinity);
  }
  __device__ static float widen(uint16_t bits, float scale) { return FromHalf::of(bits) * scale; }
};

template <>
struct Wire<ValueType::kBfloat16> {
  using Bits = uint16_t;
  __device__ static uint16_t narrow(float x, float) {
    return finite_bits(ToBfloat16::of(x), kBfloat16Infinity);
  }
  __device__ static float widen(uint16_t bits, float) { return FromBfloat16::of(bits); }
};

template <>
struct Wire<ValueType::kInt8> {
  using Bits = int8_t;
  __device__ static int8_t narrow(float x, float scale) {
    return scale == 0 ? int8_t{0} : static_cast<int8_t>(int8_code(x, scale));
  }
  __device__ static float widen(int8_t code, float scale) {
    return static_cast<float>(code) * scale;
  }
};

// Narrows x, with scale 1, after limiting its magnitude to `limit`, as std::clamp does (a NaN stays
// a NaN); float32 has no limit.
template <ValueType kType>
__device__ typename Wire<kType>::Bits narrow_within(float x, float limit) {
  if constexpr (kType != ValueType::kFloat32) {
    x = x < -limit ? -limit : x;
    x = limit < x ? limit : x;
  }
  return Wire<kType>::narrow(x, 1);
}

// The unsent rest of an entry: 0 if the whole value was sent, also for infinity.
__device__ inline float left_over(float before, float sent) {
  return before == sent ? 0 : before - sent;
}

// Reads the scale, once per thread, if the type has a scale.
template <ValueType kType>
__device__ float wire_scale(const float* scale) {
  if constexpr (has_scale(kType))
    return *scale;
  else
    return 1;
}

// Calls use.template operator()<kType>() with kType = type.
template <typename Use>
void with_wire_type(ValueType type, Use&& use) {
  if (type == ValueType::kFloat16)
    use.template operator()<ValueType::kFloat16>();
  else if (type == ValueType::kBfloat16)
    use.template operator()<ValueType::kBfloat16>();
  else if (type == ValueType::kInt8)
    use.template operator()<ValueType::kInt8>();
  else
    use.template operator()<ValueType::kFloat32>();
}

}  // namespace penstock::kernels::cuda
