// The numbers of ranks for a test, and its cases. Under a sanitizer the number is 3, which is not a
// power of two and has a rank that is neither first nor last. `tools/nightly` uses every number
// there too. A slow test may have a shorter list `few`, which is used outside of long runs.
#pragma once

#include "long.hpp"
#include "sanitized.hpp"

#include <gtest/gtest.h>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::test {

inline auto worlds(const std::vector<uint32_t>& all) {
  return ::testing::ValuesIn(kSanitized && !is_long() ? std::vector<uint32_t>{3} : all);
}

inline auto worlds(const std::vector<uint32_t>& all, const std::vector<uint32_t>& few) {
  return worlds(is_long() ? all : few);
}

// Every twelfth case of a slow suite, and every case in long runs. For cases that are also tested
// alone, each in a quicker test.
template <typename Case, size_t n>
auto every_twelfth(const Case (&all)[n]) {
  std::vector<Case> chosen;
  for (size_t i = 0; i < n; i += is_long() ? 1 : 12) chosen.push_back(all[i]);
  return ::testing::ValuesIn(chosen);
}

}  // namespace penstock::test
