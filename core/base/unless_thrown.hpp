// Turns an exception into a status, where callers or other ranks wait for a status.
#pragma once

#include "core/base/status.hpp"

#include <exception>
#include <new>

namespace penstock {

// Returns the result of `body`, a Status or a Result; OUT_OF_MEMORY if `body` throws
// std::bad_alloc, INTERNAL with the exception's text if it throws another std::exception.
template <class Body>
auto unless_thrown(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Status(Code::out_of_memory, "out of memory");
  } catch (const std::exception& error) {
    return Status(Code::internal, error.what());
  }
}

}  // namespace penstock
