// Sizes of element types. Their names are in core/config.
#pragma once

#include <penstock/base.h>

namespace penstock {

// Bytes per element; 0 for a number that is no dtype.
constexpr uint64_t dtype_bytes(uint32_t dtype) {
  switch (dtype) {
    case PENSTOCK_FLOAT64:
    case PENSTOCK_INT64:
    case PENSTOCK_UINT64:
      return 8;
    case PENSTOCK_FLOAT32:
    case PENSTOCK_INT32:
    case PENSTOCK_UINT32:
      return 4;
    case PENSTOCK_FLOAT16:
    case PENSTOCK_BFLOAT16:
    case PENSTOCK_INT16:
    case PENSTOCK_UINT16:
      return 2;
    case PENSTOCK_INT8:
    case PENSTOCK_UINT8:
    case PENSTOCK_BOOL:
      return 1;
    default:
      return 0;
  }
}

constexpr bool is_floating(uint32_t dtype) {
  return dtype == PENSTOCK_FLOAT32 || dtype == PENSTOCK_FLOAT16 || dtype == PENSTOCK_BFLOAT16 ||
         dtype == PENSTOCK_FLOAT64;
}

}  // namespace penstock
