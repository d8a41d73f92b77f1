#include "core/tensor/elements.hpp"

#include <kernels/convert.hpp>

#include <algorithm>
#include <cstring>
#include <limits>

namespace penstock {
namespace {

// All exponent bits are set: infinite or NaN. Integer operations, so that the compiler vectorises
// the loop without reordering float operations.
template <typename Word>
bool no_exponent_is_full(const void* elements, uint64_t count, Word exponent) {
  const auto* words = static_cast<const Word*>(elements);
  constexpr uint64_t kTile = 4096;
  for (uint64_t start = 0; start < count; start += kTile) {
    const uint64_t end = std::min(count, start + kTile);
    Word full = 0;
    for (uint64_t i = start; i < end; ++i)
      full |= static_cast<Word>((words[i] & exponent) == exponent);
    if (full != 0) return false;
  }
  return true;
}

template <typename T>
void scale_as(void* elements, uint64_t count, double factor) {
  auto* values = static_cast<T*>(elements);
  if constexpr (std::is_same_v<T, float>) {
    const auto narrow = static_cast<float>(factor);
    for (uint64_t i = 0; i < count; ++i) values[i] *= narrow;
  } else {
    for (uint64_t i = 0; i < count; ++i)
      values[i] = static_cast<T>(static_cast<double>(values[i]) * factor);
  }
}

template <typename T>
void divide_as(void* elements, uint64_t count, uint32_t divisor) {
  auto* values = static_cast<T*>(elements);
  for (uint64_t i = 0; i < count; ++i)
    values[i] = static_cast<T>(values[i] / static_cast<int64_t>(divisor));
}
template <>
void divide_as<uint64_t>(void* elements, uint64_t count, uint32_t divisor) {
  auto* values = static_cast<uint64_t*>(elements);
  for (uint64_t i = 0; i < count; ++i) values[i] /= divisor;
}

constexpr uint64_t kStage = 1024;  // elements that are converted at once, on the stack

}  // namespace

void to_float32(uint32_t dtype, const void* source, float* target, uint64_t count) {
  if (dtype == PENSTOCK_FLOAT32) {
    std::memcpy(target, source, count * sizeof(float));
  } else if (dtype == PENSTOCK_FLOAT16) {
    kernels::halves_to_floats(static_cast<const uint16_t*>(source), target, count);
  } else if (dtype == PENSTOCK_BFLOAT16) {
    kernels::bfloat16s_to_floats(static_cast<const uint16_t*>(source), target, count);
  } else if (dtype == PENSTOCK_FLOAT64) {
    const auto* wide = static_cast<const double*>(source);
    for (uint64_t i = 0; i < count; ++i) target[i] = static_cast<float>(wide[i]);
  }
}

void from_float32(uint32_t dtype, const float* source, void* target, uint64_t count) {
  if (dtype == PENSTOCK_FLOAT32) {
    std::memcpy(target, source, count * sizeof(float));
  } else if (dtype == PENSTOCK_FLOAT16) {
    kernels::floats_to_halves(source, static_cast<uint16_t*>(target), count);
  } else if (dtype == PENSTOCK_BFLOAT16) {
    kernels::floats_to_bfloat16s(source, static_cast<uint16_t*>(target), count);
  } else if (dtype == PENSTOCK_FLOAT64) {
    auto* wide = static_cast<double*>(target);
    for (uint64_t i = 0; i < count; ++i) wide[i] = source[i];
  }
}

void scale(uint32_t dtype, void* elements, uint64_t count, double factor) {
  if (factor == 1.0) return;
  switch (dtype) {
    case PENSTOCK_FLOAT32:
      return scale_as<float>(elements, count, factor);
    case PENSTOCK_FLOAT64:
      return scale_as<double>(elements, count, factor);
    case PENSTOCK_INT8:
      return scale_as<int8_t>(elements, count, factor);
    case PENSTOCK_UINT8:
      return scale_as<uint8_t>(elements, count, factor);
    case PENSTOCK_INT16:
      return scale_as<int16_t>(elements, count, factor);
    case PENSTOCK_UINT16:
      return scale_as<uint16_t>(elements, count, factor);
    case PENSTOCK_INT32:
      return scale_as<int32_t>(elements, count, factor);
    case PENSTOCK_UINT32:
      return scale_as<uint32_t>(elements, count, factor);
    case PENSTOCK_INT64:
      return scale_as<int64_t>(elements, count, factor);
    case PENSTOCK_UINT64:
      return scale_as<uint64_t>(elements, count, factor);
    default:
      break;
  }
  float stage[kStage];
  for (uint64_t start = 0; start < count; start += kStage) {
    const uint64_t part = std::min(kStage, count - start);
    auto* halves = static_cast<uint16_t*>(elements) + start;
    to_float32(dtype, halves, stage, part);
    scale_as<float>(stage, part, factor);
    from_float32(dtype, stage, halves, part);
  }
}

void divide(uint32_t dtype, void* elements, uint64_t count, uint32_t divisor) {
  switch (dtype) {
    case PENSTOCK_INT8:
      return divide_as<int8_t>(elements, count, divisor);
    case PENSTOCK_UINT8:
      return divide_as<uint8_t>(elements, count, divisor);
    case PENSTOCK_INT16:
      return divide_as<int16_t>(elements, count, divisor);
    case PENSTOCK_UINT16:
      return divide_as<uint16_t>(elements, count, divisor);
    case PENSTOCK_INT32:
      return divide_as<int32_t>(elements, count, divisor);
    case PENSTOCK_UINT32:
      return divide_as<uint32_t>(elements, count, divisor);
    case PENSTOCK_INT64:
      return divide_as<int64_t>(elements, count, divisor);
    case PENSTOCK_UINT64:
      return divide_as<uint64_t>(elements, count, divisor);
    default:
      return scale(dtype, elements, count, 1.0 / divisor);
  }
}

bool all_finite(uint32_t dtype, const void* elements, uint64_t count) {
  switch (dtype) {
    case PENSTOCK_FLOAT32:
      return no_exponent_is_full<uint32_t>(elements, count, 0x7f800000u);
    case PENSTOCK_FLOAT64:
      return no_exponent_is_full<uint64_t>(elements, count, 0x7ff0000000000000u);
    case PENSTOCK_FLOAT16:
      return no_exponent_is_full<uint16_t>(elements, count, 0x7c00u);
    case PENSTOCK_BFLOAT16:
      return no_exponent_is_full<uint16_t>(elements, count, 0x7f80u);
    default:
      return true;
  }
}

void fill_nan(uint32_t dtype, void* elements, uint64_t count) {
  switch (dtype) {
    case PENSTOCK_FLOAT32:
      std::fill_n(static_cast<float*>(elements), count, std::numeric_limits<float>::quiet_NaN());
      return;
    case PENSTOCK_FLOAT64:
      std::fill_n(static_cast<double*>(elements), count, std::numeric_limits<double>::quiet_NaN());
      return;
    case PENSTOCK_FLOAT16:
      std::fill_n(static_cast<uint16_t*>(elements), count, uint16_t{0x7e00});
      return;
    case PENSTOCK_BFLOAT16:
      std::fill_n(static_cast<uint16_t*>(elements), count, uint16_t{0x7fc0});
      return;
    default:
      std::memset(elements, 0, count * dtype_bytes(dtype));
  }
}

}  // namespace penstock
