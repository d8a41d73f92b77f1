// Starts mpirun, forwards the output of the ranks, and ends the remaining ranks once a rank has
// failed.
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

// Returns the exit status of `penstock run`: 0 if every rank reported success, the status of the
// first failed rank, 128 + signal if this command was interrupted, or the status of mpirun.
int launch(const LaunchOptions& options);

}  // namespace penstock::command
