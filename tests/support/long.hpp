// Whether all of a sweep is asked for: `tools/nightly` sets TEST_LONG. Else a share of it runs.
#pragma once

#include <cstdlib>

namespace penstock::test {

inline bool is_long() {
  return std::getenv("TEST_LONG") != nullptr;
}

}  // namespace penstock::test
