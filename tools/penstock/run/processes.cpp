#include "tools/penstock/run/processes.hpp"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace penstock::command {

namespace {

// The parent of a process; 0 if the process is gone.
pid_t parent_of(const std::string& process) {
  std::ifstream file("/proc/" + process + "/stat");
  // If the process ends meanwhile, the read fails; the iterators of a buffer would throw.
  std::string text;
  std::getline(file, text, '\0');
  // "PID (NAME) STATE PARENT ...": the name may contain any text, so parse after the last ")".
  const size_t after = text.rfind(')');
  pid_t parent = 0;
  if (after != std::string::npos && after + 4 < text.size())
    std::from_chars(text.data() + after + 4, text.data() + text.size(), parent);
  return parent;
}

}  // namespace

std::vector<pid_t> descendants(pid_t root) {
  std::multimap<pid_t, pid_t> children;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    pid_t process = 0;
    const auto [rest, bad] = std::from_chars(name.data(), name.data() + name.size(), process);
    if (bad == std::errc() && *rest == '\0') children.emplace(parent_of(name), process);
  }
  std::vector<pid_t> found = {root};
  for (size_t i = 0; i < found.size(); ++i) {
    const auto [first, last] = children.equal_range(found[i]);
    std::for_each(first, last, [&](const auto& each) { found.push_back(each.second); });
  }
  found.erase(found.begin());
  return found;
}

bool is_descendant(pid_t process, pid_t root) {
  while (process > 1 && process != root) process = parent_of(std::to_string(process));
  return process == root;
}

void signal_tree(pid_t root, int number) {
  std::vector<pid_t> all = descendants(root);
  all.push_back(root);
  for (const pid_t each : all) {
    kill(each, number);
    if (number != SIGKILL) kill(each, SIGCONT);
  }
}

}  // namespace penstock::command
