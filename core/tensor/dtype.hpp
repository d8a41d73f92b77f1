// Element types: their sizes (as in the SDK), and their names in files and messages.
#pragma once

#include <penstock/views.hpp>

#include <algorithm>
#include <array>
#include <string_view>

namespace penstock {

using sdk::dtype_bytes;  // 0 for a number that is no dtype

constexpr bool is_floating(uint32_t dtype) {
  return dtype == PENSTOCK_FLOAT32 || dtype == PENSTOCK_FLOAT16 || dtype == PENSTOCK_BFLOAT16 ||
         dtype == PENSTOCK_FLOAT64;
}

constexpr std::array<std::string_view, 14> kDtypeNames = {
    "unknown", "float32", "float16", "bfloat16", "float64", "int8",   "uint8",
    "int16",   "uint16",  "int32",   "uint32",   "int64",   "uint64", "bool"};

// "float32", ...; "unknown" for a number that is no dtype. The reverse gives 0 for an unknown name.
constexpr std::string_view dtype_name(uint32_t dtype) {
  return kDtypeNames[dtype < kDtypeNames.size() ? dtype : 0];
}
constexpr uint32_t dtype_from_name(std::string_view name) {
  const auto found = std::find(kDtypeNames.begin() + 1, kDtypeNames.end(), name);
  return found == kDtypeNames.end() ? 0 : static_cast<uint32_t>(found - kDtypeNames.begin());
}

}  // namespace penstock
