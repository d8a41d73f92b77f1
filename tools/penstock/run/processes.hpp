// The processes of this host as a tree.
#pragma once

#include <sys/types.h>

#include <vector>

namespace penstock::command {

// Parents before children, without `root` itself; empty where there are none.
std::vector<pid_t> descendants(pid_t root);
bool is_descendant(pid_t process, pid_t root);

// Sends a signal to a process and all its descendants; one that is stopped goes on to receive it.
void signal_tree(pid_t root, int number);

}  // namespace penstock::command
