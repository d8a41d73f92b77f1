// Turns a failed allocation into a status, on threads whose callers wait for a status.
#pragma once

#include "core/base/status.hpp"

#include <new>

namespace penstock {

// Returns the result of `body`, a Status or a Result; OUT_OF_MEMORY if `body` throws
// std::bad_alloc.
template <class Body>
auto unless_out_of_memory(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Status(Code::out_of_memory, "out of memory");
  }
}

}  // namespace penstock
