// A process of this host, watched for its end.
#pragma once

#include <string>

namespace penstock::ucx {

class Process {
 public:
  Process() = default;  // none: never ends
  // One that has said of itself what `this_one` returns there. Where it cannot be watched, as in
  // another space of process numbers, it never ends.
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
