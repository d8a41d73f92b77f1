// Starts mpirun, passes on what the ranks say, and ends what is left once a rank has failed.
#pragma once

#include <string>
#include <vector>

namespace penstock::command {

struct LaunchOptions {
  int ranks = 0;
  std::string hosts;  // a file for mpirun's --hostfile; empty: this host
  double grace_s = 0;
  bool prefix = true;
  std::vector<std::string> exported;  // NAME or NAME=VALUE, for ranks on other hosts
  std::vector<std::string> command;
};

// Returns the exit status of `penstock run`: 0 if every rank reported success, the first failed
// rank's, 128 + signal if this command was interrupted, or mpirun's own.
int launch(const LaunchOptions& options);

}  // namespace penstock::command
