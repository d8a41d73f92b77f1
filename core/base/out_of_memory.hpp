// Turns "no memory" into a status where others wait to hear of it.
#pragma once

#include "core/base/status.hpp"

#include <new>

namespace penstock {

// What `body` returns, a Status or a Result; OUT_OF_MEMORY where it throws for want of memory.
template <class Body>
auto unless_out_of_memory(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Status(Code::out_of_memory, "out of memory");
  }
}

}  // namespace penstock
