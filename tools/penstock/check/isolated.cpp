// Runs a test in a separate process, so that a crash or hang of a plugin is a finding and does not
// end the command.
#include "tools/penstock/check/tests.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace penstock::command {

namespace {

constexpr size_t kNoteBytes = 512;

// The note about the child's present action, in memory that parent and child share.
char* note() {
  static char* const page = [] {
    void* memory =
        mmap(nullptr, kNoteBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    static char fallback[kNoteBytes];
    return memory == MAP_FAILED ? fallback : static_cast<char*>(memory);
  }();
  return page;
}

// Runs in the child: writes the verdict's letter and the reason into the pipe. Never returns.
[[noreturn]] void report(const std::function<TestOutcome()>& body, int pipe_end) {
  TestOutcome outcome;
  try {
    outcome = body();
  } catch (const std::exception& error) {
    outcome = {Verdict::failed, error.what()};
  }
  std::string message(1, static_cast<char>('0' + static_cast<int>(outcome.verdict)));
  message += outcome.reason;
  for (size_t sent = 0; sent < message.size();) {
    const ssize_t n = write(pipe_end, message.data() + sent, message.size() - sent);
    if (n <= 0) break;
    sent += static_cast<size_t>(n);
  }
  _exit(0);  // no destructors: the plugin may have broken their data
}

// How long a child may take: so many seconds of a processor, and as long without using one. A child
// that a busy machine leaves waiting is given longer.
class Patience {
 public:
  Patience(pid_t child, double seconds)
      : seconds_(seconds), has_clock_(clock_getcpuclockid(child, &clock_) == 0) {}

  bool is_over() {
    const auto now = std::chrono::steady_clock::now();
    const double used = processor_seconds();
    if (used - used_then_ > kWorks) {
      used_then_ = used;
      worked_ = now;
    }
    return used >= seconds_ || now - worked_ >= std::chrono::duration<double>(seconds_);
  }

 private:
  static constexpr double kWorks = 0.02;  // seconds of a processor; a child that rests uses fewer

  double processor_seconds() const {
    timespec used{};
    if (!has_clock_ || clock_gettime(clock_, &used) != 0) return used_then_;
    return double(used.tv_sec) + double(used.tv_nsec) * 1e-9;
  }

  double seconds_;
  clockid_t clock_{};
  bool has_clock_;
  double used_then_ = 0;
  std::chrono::steady_clock::time_point worked_ = std::chrono::steady_clock::now();
};

// Reads until the child closes its end; false if the child takes too long.
bool read_all(int pipe_end, Patience patience, std::string& message) {
  constexpr int kLookMs = 100;
  for (;;) {
    pollfd wanted{pipe_end, POLLIN, 0};
    if (poll(&wanted, 1, kLookMs) == 0) {
      if (patience.is_over()) return false;
      continue;
    }
    char bytes[4096];
    const ssize_t n = read(pipe_end, bytes, sizeof bytes);
    if (n <= 0) return true;
    message.append(bytes, static_cast<size_t>(n));
  }
}

std::string while_doing() {
  return note()[0] == '\0' ? std::string() : fmt::format(" while: {}", note());
}

}  // namespace

void doing(std::string_view what) {
  const size_t size = std::min(what.size(), kNoteBytes - 1);
  std::memcpy(note(), what.data(), size);
  note()[size] = '\0';
}

TestOutcome isolated(const std::function<TestOutcome()>& body, double seconds) {
  doing("");
  int ends[2];
  if (pipe(ends) != 0) return {Verdict::failed, "no pipe to a process of its own"};
  const pid_t child = fork();
  if (child < 0) {
    close(ends[0]);
    close(ends[1]);
    return {Verdict::failed, "no process of its own could be made"};
  }
  if (child == 0) {
    close(ends[0]);
    report(body, ends[1]);
  }
  close(ends[1]);
  std::string message;
  const bool in_time = read_all(ends[0], Patience(child, seconds), message);
  close(ends[0]);
  if (!in_time) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time)
    return {Verdict::failed, fmt::format("not done after {} s{}", seconds, while_doing())};
  if (WIFSIGNALED(status))
    return {Verdict::failed, fmt::format("crashed with signal {} ({}){}", WTERMSIG(status),
                                         strsignal(WTERMSIG(status)), while_doing())};
  if (message.empty() || message[0] < '0' || message[0] > '3')
    return {Verdict::failed, fmt::format("ended the process{}", while_doing())};
  return {static_cast<Verdict>(message[0] - '0'), message.substr(1)};
}

TestOutcome load_alone(Registry& registry, const PluginFile& file) {
  constexpr double kSeconds = 20;
  return isolated(
      [&]() -> TestOutcome {
        const Status status = registry.load(file.record.kind, file.record.name).status();
        if (status.code() != Code::not_found) return status;
        return {Verdict::warning, std::string(status.message())};
      },
      kSeconds);
}

}  // namespace penstock::command
