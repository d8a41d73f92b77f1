// Scales in the element's own type (half precision in float). Integers are scaled in double and
// truncated. An average is a division, rounded once. An average with a factor is one product, as in
// Horovod.
#include "core/operations/scale.hpp"

#include "core/tensor/elements.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace penstock {
namespace {

template <typename T>
T narrowed(double value) {
  // The upper limit may not be a double. A value at or above 2^bits does not fit, a smaller value
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
    const T by = static_cast<T>(factor == 1 ? divisor : factor / divisor);
    if (factor == 1)
      for (uint64_t i = 0; i < count; ++i) to[i] = from[i] / by;
    else
      for (uint64_t i = 0; i < count; ++i) to[i] = from[i] * by;
  } else {
    for (uint64_t i = 0; i < count; ++i)
      to[i] = narrowed<T>(static_cast<double>(from[i]) * factor / divisor);
  }
}

void scale_halves(uint32_t dtype, const void* source, void* target, uint64_t count, double factor,
                  double divisor) {
  constexpr uint64_t kTile = 1024;
  float tile[kTile];
  const auto* from = static_cast<const uint16_t*>(source);
  auto* to = static_cast<uint16_t*>(target);
  for (uint64_t begin = 0; begin < count; begin += kTile) {
    const uint64_t n = std::min(kTile, count - begin);
    to_float32(dtype, from + begin, tile, n);
    scale_as<float>(tile, tile, n, factor, divisor);
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
      return scale_halves(dtype, source, target, count, factor, divisor);
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
