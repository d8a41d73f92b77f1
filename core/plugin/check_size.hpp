// The bound that struct sizes from plugins are held against.
#pragma once

#include <cstdint>

namespace penstock {

// No struct of the ABI comes near it: a larger struct_size is a mistake or garbage.
inline constexpr uint64_t kMostStructBytes = 65536;

}  // namespace penstock
