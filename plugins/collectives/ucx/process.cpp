// See process.hpp.
#include "process.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

namespace penstock::ucx {

namespace {

// "pid:[4026531836]": equal for processes in one PID namespace, where a number means one process.
std::string space_of_numbers() {
  char space[64] = {};
  const ssize_t size = readlink("/proc/self/ns/pid", space, sizeof space - 1);
  return std::string(space, size < 0 ? 0 : static_cast<size_t>(size));
}

}  // namespace

std::string Process::this_one() {
  return std::to_string(getpid()) + "@" + space_of_numbers();
}

Process::Process(const std::string& name) {
  const size_t end = name.find('@');
  if (end == std::string::npos || name.substr(end + 1) != space_of_numbers()) return;
  file_ = static_cast<int>(syscall(SYS_pidfd_open, std::atoi(name.c_str()), 0));
}

Process::~Process() {
  if (file_ >= 0) close(file_);
}

Process::Process(Process&& other) noexcept : file_(std::exchange(other.file_, -1)) {}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(file_, other.file_);
  return *this;
}

bool Process::ended() const {
  pollfd watched{file_, POLLIN, 0};
  return file_ >= 0 && poll(&watched, 1, 0) == 1;
}

}  // namespace penstock::ucx
