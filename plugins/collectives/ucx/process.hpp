// A process of this host, which is watched so that its end is noticed.
#pragma once

#include <string>

namespace penstock::ucx {

class Process {
 public:
  Process() = default;  // no process: it never ends
  // The process in which `this_one` returned `name`. A process that cannot be watched, for example
  // in another PID namespace, counts as a process that never ends.
  explicit Process(const std::string& name);
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;

  bool ended() const;
  static std::string this_one();

 private:
  int file_ = -1;
};

}  // namespace penstock::ucx
