// Which process this is: threads, sockets and locks of a runtime stay behind when its process
// forks.
#pragma once

#include "core/base/status.hpp"

#include <cstdint>

namespace penstock {

// [any] Remembers the process that made it.
class HomeProcess {
 public:
  HomeProcess();
  // FAILED_PRECONDITION in a process that was forked from it. Costs one load: no system call.
  Status check() const;
  bool is_here() const;

 private:
  uint32_t generation_;
};

}  // namespace penstock
