// The part of a sweep over seeds, sizes or failing allocations that a test runs: a few cases, or
// every case in `tools/nightly`, which sets TEST_LONG.
#pragma once

#include <cstdlib>

namespace penstock::test {

inline bool is_long() {
  return std::getenv("TEST_LONG") != nullptr;
}

}  // namespace penstock::test
