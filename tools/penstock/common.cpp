// Common functions of the sub-commands: options, the plugins of this machine, other programs.
#include "tools/penstock/commands.hpp"

#include "core/base/printable.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <sstream>

namespace penstock::command {

namespace {

std::vector<std::string> absolute(const std::vector<std::string>& directories) {
  std::vector<std::string> all;
  for (const std::string& directory : directories)
    all.push_back(std::filesystem::absolute(directory).lexically_normal().string());
  return all;
}

template <typename Number>
CLI::Validator from(const char* kind, const char* type, Number least, Number most) {
  const std::string range = fmt::format("{} to {}", least, most);
  const auto check = [=](std::string& text) -> std::string {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_one = error != std::errc::invalid_argument && end == text.data() + text.size();
    if (!is_one || value != value)
      return fmt::format("\"{}\" is no {}, expected {}", printable_piece(text), kind, range);
    if (error == std::errc() && value >= least && value <= most) return {};
    return fmt::format("{} is out of range, expected {}", printable_piece(text), range);
  };
  return CLI::Validator(check, fmt::format("{} in [{} - {}]", type, least, most));
}

}  // namespace

CLI::Validator whole_from(uint64_t least, uint64_t most) {
  return from<int64_t>("whole number", "INT", static_cast<int64_t>(least),
                       static_cast<int64_t>(most));
}

CLI::Validator number_from(double least, double most) {
  return from<double>("number", "FLOAT", least, most);
}

void add_json_flag(CLI::App& app, bool& json) {
  app.add_flag("--json", json, "print JSON, for programs");
}

void add_plugin_path(CLI::App& app, std::vector<std::string>& directories) {
  app.add_option("--plugin-path", directories,
                 "a folder with plugins, searched before the others; may be repeated")
      ->allow_extra_args(false)
      ->check(CLI::ExistingDirectory)
      ->type_name("DIR");
}

Plugins::Plugins(const std::vector<std::string>& directories, bool allow_insecure)
    : host_(log_),
      registry_(host_.table(), {plugin_directories(absolute(directories)), allow_insecure}),
      problem_(registry_.scan()) {}

std::string program_directory() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path().string();
}

std::string find_program(std::string_view name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::filesystem::path file =
        std::filesystem::path(folder.empty() ? "." : folder) / std::string(name);
    std::error_code ignored;
    if (access(file.c_str(), X_OK) == 0 && std::filesystem::is_regular_file(file, ignored))
      return file.string();
  }
  return {};
}

Ran run_program(const std::vector<std::string>& arguments, double seconds) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    setpgid(0, 0);                     // so that a kill also reaches its children
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // Ctrl-C reaches only the process group of this command
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  close(ends[1]);
  Ran ran;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  bool ended = child < 0;
  while (!ended) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd wanted{ends[0], POLLIN, 0};
    if (left.count() <= 0 || poll(&wanted, 1, static_cast<int>(left.count())) == 0) {
      kill(-child, SIGKILL);
      break;
    }
    char bytes[4096];
    const ssize_t n = read(ends[0], bytes, sizeof bytes);
    if (n > 0) ran.output.append(bytes, static_cast<size_t>(n));
    ended = n <= 0;
  }
  close(ends[0]);
  int status = 0;
  if (child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status))
    ran.status = WEXITSTATUS(status);
  return ran;
}

std::vector<std::string> mpirun_flags() {
  // Without recovery, mpirun ends all ranks when the first rank dies, and the surviving ranks could
  // not report which rank died. Ranks yield when idle, because there are often more ranks than
  // cores.
  std::vector<std::string> flags = {
      "--oversubscribe", "--bind-to",           "none", "--enable-recovery",
      "--mca",           "mpi_yield_when_idle", "1"};
  if (geteuid() == 0) flags.push_back("--allow-run-as-root");
  return flags;
}

}  // namespace penstock::command
