// What the functions of the C interface (runtime.h) share: their handles, and the way out for
// errors and exceptions.
#pragma once

#include "core/base/process.hpp"
#include "core/base/status.hpp"
#include "core/base/unless_thrown.hpp"
#include "core/runtime/runtime.hpp"
#include "core/runtime/step_protocol.hpp"
#include "core/set/set.hpp"

#include <penstock/runtime.h>

#include <memory>

struct penstock_runtime {
  penstock::RuntimeHandle runtime;
  penstock::HomeProcess home = {};
};
struct penstock_set {
  penstock::SetHandle set;
  penstock::StepProtocol step;
  penstock::HomeProcess home = {};
};
struct penstock_operation {
  std::shared_ptr<penstock::Operation> operation;
  penstock::HomeProcess home = {};
};

namespace penstock {

// Exceptions must not pass this interface.
template <typename Body>
penstock_status* door(Body&& body) noexcept {
  return to_c(unless_thrown(body));
}

// For a call with a handle. Only the process that made the handle may use it.
template <typename Handle, typename Body>
penstock_status* door(const Handle* handle, Body&& body) noexcept {
  return door([&]() -> Status {
    PENSTOCK_TRY(handle->home.check());
    return body();
  });
}

}  // namespace penstock
