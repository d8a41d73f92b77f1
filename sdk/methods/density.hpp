// Computes the number of entries that a density keeps. All sparse methods use it before they
// select. It is not a kernel; each plugin compiles its own copy.
#pragma once

#include <penstock/options.hpp>
#include <penstock/views.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace penstock::sdk {

inline constexpr uint64_t kMostIndexedEntries = uint64_t{1} << 32;

// Throws INVALID_ARGUMENT for an item of `most` entries or more, which `method` cannot index.
inline void check_indexable(const Item& item, std::string_view method,
                            uint64_t most = kMostIndexedEntries) {
  if (item.numel() < most) return;
  throw invalid_argument("gradient '", item.name(), "' has ", item.numel(), " entries; ", method,
                         " numbers them with 32 bits, expected fewer than ", most,
                         "; add a rule that sends it with another compressor");
}

// The option `density`, a share in (0, 1].
inline Option density_option(double value, const char* summary) {
  return real_option("density", value).above(0).at_most(1).unit("fraction").summary(summary);
}

// ceil(share * n), at least 1, at most n (0 for n = 0). The small term keeps 0.01 of 700 at 7
// although 0.01 is no binary fraction.
inline uint64_t kept_count(uint64_t n, double share) {
  const double wanted = std::ceil(share * static_cast<double>(n) - 1e-9);
  return std::min(n, static_cast<uint64_t>(std::max(wanted, 1.0)));
}

}  // namespace penstock::sdk
