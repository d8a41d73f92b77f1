// Rank 0 has said goodbye and stays for the other ranks, whose connections its server serves.
#pragma once

#include "core/control/server.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace penstock::control {

class Stay {
 public:
  using Warn = std::function<void(std::string text)>;
  // The server must outlive it. It stays at most most_us, and warns by name every warning_us; 0:
  // never. `warn` may be null.
  Stay(Server& server, uint64_t most_us, uint64_t warning_us, Warn warn);

  // Waits at most wait_us. True: nobody is left, or the time is over.
  bool wait(uint64_t wait_us);

 private:
  void warn_of(const std::vector<uint32_t>& ranks, uint64_t now_us);

  Server& server_;
  const uint64_t most_us_;
  const uint64_t warning_us_;
  const Warn warn_;
  const uint64_t since_us_;
  uint64_t warn_at_us_;
};

}  // namespace penstock::control
