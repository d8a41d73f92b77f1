// What is never freed, on purpose: memory that a transport may still write to after an exchange
// ended in an error. The run is over at that point.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

#include <utility>

namespace penstock {

// Moves `thing` to where nothing frees it; the leak checker is told that this is meant.
template <class Thing>
Thing& leave_behind(Thing thing) {
  auto* kept = new Thing(std::move(thing));
#if defined(__SANITIZE_ADDRESS__)
  __lsan_ignore_object(kept);
#endif
  return *kept;
}

}  // namespace penstock
