// The numbers of ranks that a test runs with: all of them, or under a sanitizer three, which is no
// power of two and has ranks that neither begin nor end. `tools/nightly` takes all there too. A
// test that is slow for what it tells runs with `few` wherever that is not asked for.
#pragma once

#include "long.hpp"
#include "sanitized.hpp"

#include <gtest/gtest.h>
#include <cstdint>
#include <vector>

namespace penstock::test {

inline auto worlds(const std::vector<uint32_t>& all) {
  return ::testing::ValuesIn(kSanitized && !is_long() ? std::vector<uint32_t>{3} : all);
}

inline auto worlds(const std::vector<uint32_t>& all, const std::vector<uint32_t>& few) {
  return worlds(is_long() ? all : few);
}

}  // namespace penstock::test
