// Identifies the process. When a process forks, the child does not get the threads, sockets and
// locks of the runtime in a usable state.
#pragma once

#include "core/base/status.hpp"

#include <cstdint>

namespace penstock {

// [any] Remembers the process that constructed it.
class HomeProcess {
 public:
  HomeProcess();
  // FAILED_PRECONDITION in a forked child of that process. Costs one load and no system call.
  Status check() const;
  bool is_here() const;

 private:
  uint32_t generation_;
};

}  // namespace penstock
