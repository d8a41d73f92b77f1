// Scaling with Horovod's bits: floating point times one factor in its own type (half precision in
// float), integers through double and truncated.
#include "core/operations/order.hpp"
#include "core/tensor/elements.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace penstock {
namespace {

template <typename T>
T narrowed(double value) {
  // The upper bound may not be a double: at or above 2^bits the value does not fit, below it
  // does.
  const double above = std::ldexp(1.0, std::numeric_limits<T>::digits);
  if (std::isnan(value)) return 0;
  if (value >= above) return std::numeric_limits<T>::max();
  if (value <= static_cast<double>(std::numeric_limits<T>::min()))
    return std::numeric_limits<T>::min();
  return static_cast<T>(value);
}

template <typename T>
void scale_as(const void* source, void* target, uint64_t count, double factor, double divisor) {
  const auto* from = static_cast<const T*>(source);
  auto* to = static_cast<T*>(target);
  if constexpr (std::is_floating_point_v<T>) {
    const T combined = static_cast<T>(factor / divisor);
    for (uint64_t i = 0; i < count; ++i) to[i] = from[i] * combined;
  } else {
    for (uint64_t i = 0; i < count; ++i)
      to[i] = narrowed<T>(static_cast<double>(from[i]) * factor / divisor);
  }
}

void scale_halves(uint32_t dtype, const void* source, void* target, uint64_t count,
                  float combined) {
  constexpr uint64_t kTile = 1024;
  float tile[kTile];
  const auto* from = static_cast<const uint16_t*>(source);
  auto* to = static_cast<uint16_t*>(target);
  for (uint64_t begin = 0; begin < count; begin += kTile) {
    const uint64_t n = std::min(kTile, count - begin);
    to_float32(dtype, from + begin, tile, n);
    for (uint64_t i = 0; i < n; ++i) tile[i] *= combined;
    from_float32(dtype, tile, to + begin, n);
  }
}

}  // namespace

void scale_elements(uint32_t dtype, const void* source, void* target, uint64_t count, double factor,
                    double divisor) {
  switch (dtype) {
    case PENSTOCK_FLOAT32:
      return scale_as<float>(source, target, count, factor, divisor);
    case PENSTOCK_FLOAT64:
      return scale_as<double>(source, target, count, factor, divisor);
    case PENSTOCK_FLOAT16:
    case PENSTOCK_BFLOAT16:
      return scale_halves(dtype, source, target, count, static_cast<float>(factor / divisor));
    case PENSTOCK_INT8:
      return scale_as<int8_t>(source, target, count, factor, divisor);
    case PENSTOCK_UINT8:
      return scale_as<uint8_t>(source, target, count, factor, divisor);
    case PENSTOCK_INT16:
      return scale_as<int16_t>(source, target, count, factor, divisor);
    case PENSTOCK_UINT16:
      return scale_as<uint16_t>(source, target, count, factor, divisor);
    case PENSTOCK_INT32:
      return scale_as<int32_t>(source, target, count, factor, divisor);
    case PENSTOCK_UINT32:
      return scale_as<uint32_t>(source, target, count, factor, divisor);
    case PENSTOCK_INT64:
      return scale_as<int64_t>(source, target, count, factor, divisor);
    case PENSTOCK_UINT64:
      return scale_as<uint64_t>(source, target, count, factor, divisor);
    default:
      return;
  }
}

}  // namespace penstock
