// The processes of this host as a tree.
#pragma once

#include <sys/types.h>

#include <vector>

namespace penstock::command {

// The descendants of `root`, parents before children, without `root` itself.
std::vector<pid_t> descendants(pid_t root);
bool is_descendant(pid_t process, pid_t root);

// Sends a signal to a process and all its descendants. Stopped processes are continued, so that
// they receive it.
void signal_tree(pid_t root, int number);

}  // namespace penstock::command
