// What UCX complains of goes to the run's log instead of the process's output.
#pragma once

namespace penstock::ucx {

// While one of them lives. [any]
class Words {
 public:
  Words();
  ~Words();
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
};

}  // namespace penstock::ucx
