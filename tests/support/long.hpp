// The part of a sweep over seeds, sizes or failing allocations that a test runs: a few cases in
// `tools/test`, the usual part in `tools/test --all`, which sets TEST_ALL, and every case in
// `tools/nightly`, which sets TEST_LONG.
#pragma once

#include <cstdlib>

namespace penstock::test {

inline bool is_long() {
  return std::getenv("TEST_LONG") != nullptr;
}

inline bool is_brief() {
  return !is_long() && std::getenv("TEST_ALL") == nullptr;
}

}  // namespace penstock::test
