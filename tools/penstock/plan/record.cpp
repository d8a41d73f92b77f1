#include "tools/penstock/plan/record.hpp"

#include "tools/penstock/run/environment.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

namespace penstock::command {

namespace {

namespace fs = std::filesystem;

std::optional<fs::file_time_type> written_at(const fs::path& path) {
  std::error_code error;
  const fs::file_time_type time = fs::last_write_time(path, error);
  return error ? std::nullopt : std::optional(time);
}

// The program to start for `name`. "penstock" is this command, even if it is not on the PATH.
std::string program_of(const std::string& name) {
  std::error_code error;
  if (name != "penstock") return program_to_run(name);
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  return error ? name : self.string();
}

// Runs in the child: becomes the job. Its output goes to stderr, because it is not the answer of
// this command. Never returns.
[[noreturn]] void become(std::vector<std::string>& command) {
  dup2(STDERR_FILENO, STDOUT_FILENO);
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments.front(), arguments.data());
  fprintf(stderr, "penstock: %s cannot be started: %s\n", arguments.front(), std::strerror(errno));
  _exit(127);
}

// Runs a command and returns its exit status as a shell does. Ctrl-C ends the child only; this
// command then reports its end.
int run_and_wait(std::vector<std::string>& command) {
  const pid_t child = fork();
  if (child < 0) return 126;
  if (child == 0) become(command);
  const auto before = std::signal(SIGINT, SIG_IGN);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  std::signal(SIGINT, before);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

Status record_profile(const std::string& file, std::vector<std::string> command) {
  if (command.empty())
    return invalid_argument(
        "--record needs the job whose model is recorded, example: penstock plan --record {} -- "
        "penstock run -np 2 -- python train.py",
        file);
  const fs::path path = fs::absolute(file);
  const auto before = written_at(path);
  setenv("PENSTOCK_PROFILE", path.c_str(), 1);
  command.front() = program_of(command.front());
  if (const int status = run_and_wait(command); status != 0)
    return failed_precondition("the job ended with status {}, so nothing is predicted", status);
  if (const auto after = written_at(path); after && after != before) return {};
  return failed_precondition(
      "the job ended, but left no profile in {}: no optimizer or hook of Penstock was stepped on "
      "its rank 0, or its configuration has a `profile` of its own",
      file);
}

}  // namespace penstock::command
