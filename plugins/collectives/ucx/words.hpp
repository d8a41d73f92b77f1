// Writes the errors and warnings of UCX to the run's log instead of the process's output.
#pragma once

namespace penstock::ucx {

// Redirects the messages of UCX while at least one object of this class lives. [any]
class Words {
 public:
  Words();
  ~Words();
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
};

}  // namespace penstock::ucx
