// Memory that is leaked on purpose, because a transport may still write to it after an exchange
// ended in an error. The run is over at that point.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

#include <utility>

namespace penstock {

// Moves `thing` to a place that is never freed, and informs the leak checker.
template <class Thing>
Thing& leak(Thing thing) {
  auto* kept = new Thing(std::move(thing));
#if defined(__SANITIZE_ADDRESS__)
  __lsan_ignore_object(kept);
#endif
  return *kept;
}

}  // namespace penstock
