// The one clock of the core.
#pragma once

#include <chrono>
#include <cstdint>

namespace penstock {

// Microseconds on the steady clock.
inline uint64_t now_us() {
  using namespace std::chrono;
  return uint64_t(duration_cast<microseconds>(steady_clock::now().time_since_epoch()).count());
}

}  // namespace penstock
