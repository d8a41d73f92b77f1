// How much of a sweep over seeds, sizes or failing allocations a test takes: a few cases in
// `tools/test`, the usual share in `tools/test --all`, which sets TEST_ALL, and every case in
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
