// Linked into every test program. A program that aborts while a test captures stderr would take its
// last words along: what was thrown, or what the allocator found. They go to stderr as it was when
// the program began, and so does the stack.
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace {

constexpr off_t kMostBytes = 8000;

const int first_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 100);

// Only functions that a handler of signals may call.
void show_captured() {
  struct stat now = {}, first = {};
  if (fstat(STDERR_FILENO, &now) != 0 || fstat(first_stderr, &first) != 0) return;
  if (!S_ISREG(now.st_mode) || (now.st_dev == first.st_dev && now.st_ino == first.st_ino)) return;
  char part[512];
  for (off_t at = std::max<off_t>(0, now.st_size - kMostBytes); at < now.st_size;) {
    const ssize_t n = pread(STDERR_FILENO, part, sizeof part, at);
    if (n <= 0 || write(first_stderr, part, static_cast<size_t>(n)) != n) return;
    at += n;
  }
}

void on_abort(int signal_number) {
  show_captured();
  void* frames[64];
  backtrace_symbols_fd(frames, backtrace(frames, 64), first_stderr);
  signal(signal_number, SIG_DFL);
}

const bool watches = [] {
  void* frame[1];
  backtrace(frame, 1);  // loads its library now, because a handler must not
  return first_stderr >= 0 && signal(SIGABRT, on_abort) != SIG_ERR;
}();

}  // namespace
