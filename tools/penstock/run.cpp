// penstock run: a program on several ranks, by mpirun. When one rank fails the others live on, to
// report which one it was; the exit status tells of the failure all the same.
#include "core/config/load.hpp"
#include "tools/penstock/commands.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

namespace penstock::command {

namespace {

struct RunOptions {
  int ranks = 0;
  std::string config;
  std::string hosts;
  std::vector<std::string> command;
};

// With --enable-recovery mpirun's own status is 0 whatever becomes of the ranks. So each rank's
// program runs under a shell that says how it ended, on the one way that leads here from every
// host: standard error.
constexpr std::string_view kEnded = "penstock: this rank's program ended with status ";
constexpr const char* kRankScript =
    "\"$@\"; s=$?; [ $s -eq 0 ] || "
    "printf '%s%s (rank %s)\\n' \"$PENSTOCK_RUN_ENDED\" $s \"$OMPI_COMM_WORLD_RANK\" >&2; exit $s";

std::vector<std::string> mpirun_arguments(const RunOptions& options) {
  std::vector<std::string> arguments = {"mpirun", "-np", std::to_string(options.ranks)};
  for (const std::string& flag : mpirun_flags()) arguments.push_back(flag);
  if (!options.hosts.empty()) arguments.insert(arguments.end(), {"--hostfile", options.hosts});
  if (!options.config.empty()) {
    const std::string path = std::filesystem::absolute(options.config).string();
    setenv("PENSTOCK_CONFIG", path.c_str(), 1);
  }
  setenv("PENSTOCK_RUN_ENDED", std::string(kEnded).c_str(), 1);
  for (const char* name : {"PENSTOCK_CONFIG", "PENSTOCK_PLUGIN_DIRECTORY", "PENSTOCK_RUN_ENDED"})
    if (std::getenv(name) != nullptr) arguments.insert(arguments.end(), {"-x", name});
  arguments.insert(arguments.end(), {"sh", "-c", kRankScript, "sh"});
  arguments.insert(arguments.end(), options.command.begin(), options.command.end());
  return arguments;
}

// Passes on what comes from `source` to standard error, as it comes. The status of the first rank
// that failed; 0 if none said so.
int pass_on(int source) {
  std::string recent;  // enough of the end to find a line that came in two parts
  int failed = 0;
  char bytes[4096];
  for (;;) {
    const ssize_t n = read(source, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return failed;
    for (ssize_t written = 0; written < n;) {
      const ssize_t part = write(STDERR_FILENO, bytes + written, static_cast<size_t>(n - written));
      if (part <= 0) break;
      written += part;
    }
    recent.append(bytes, static_cast<size_t>(n));
    const size_t at = recent.find(kEnded);
    if (failed == 0 && at != std::string::npos &&
        recent.find('(', at + kEnded.size()) != std::string::npos)
      failed = std::atoi(recent.c_str() + at + kEnded.size());
    if (recent.size() > 4 * sizeof bytes) recent.erase(0, recent.size() - sizeof bytes);
  }
}

pid_t started = 0;  // mpirun, for the handler of signals

int run_mpirun(const RunOptions& options) {
  std::vector<std::string> arguments = mpirun_arguments(options);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return fail("no pipe to mpirun could be made");
  started = fork();
  if (started < 0) return fail("no process for mpirun could be made");
  // mpirun that gets one signal twice, from its group and from us, quits at once and leaves the
  // ranks behind. So it has a group of its own, except at a terminal, which only one group may
  // read.
  const bool at_terminal = isatty(STDIN_FILENO) != 0;
  if (started == 0) {
    if (!at_terminal) setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // never outlives this command
    dup2(ends[1], STDERR_FILENO);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  close(ends[1]);
  // mpirun ends the ranks; we stay to tell how it ended. At a terminal Ctrl-C reaches it by itself.
  const auto forward = [](int number) { kill(started, number); };
  std::signal(SIGTERM, forward);
  std::signal(SIGINT, at_terminal ? SIG_IGN : static_cast<void (*)(int)>(forward));
  const int failed = pass_on(ends[0]);
  int status = 0;
  while (waitpid(started, &status, 0) < 0 && errno == EINTR) {
  }
  const int own = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return own != 0 ? own : failed;
}

int run(const RunOptions& options) {
  if (options.command.empty())
    return fail("no program to run was given; example: penstock run -np 2 -- python3 train.py");
  if (!options.config.empty()) {
    Result<Config> config = load_config_file(options.config);
    if (!config.ok()) return fail(config.status().message());
  }
  if (!options.hosts.empty() && access(options.hosts.c_str(), R_OK) != 0)
    return fail(fmt::format("the file of hosts {} cannot be read: {}", options.hosts,
                            std::strerror(errno)));
  if (find_program("mpirun").empty())
    return fail(
        "mpirun is not on the PATH; install Open MPI (Debian: apt-get install openmpi-bin), or run "
        "tools/setup");
  return run_mpirun(options);
}

}  // namespace

void add_run(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* run_app = app.add_subcommand("run", "Run a program on several ranks with mpirun");
  run_app->footer(
      "-np N may be written for -n N. The exit status is mpirun's, or that of the first rank that "
      "failed.\n"
      "Example: penstock run -np 4 --config conf/dgc.toml -- python3 train.py");
  run_app->add_option("-n,--ranks", options->ranks, "number of ranks")
      ->required()
      ->check(CLI::Range(1, 65536));
  run_app->add_option("--config", options->config, "the configuration, checked before the start")
      ->type_name("FILE");
  run_app->add_option("--hosts", options->hosts, "machines to run on, as mpirun's --hostfile")
      ->type_name("FILE");
  run_app->add_option("CMD", options->command, "the program and its arguments; put -- before it");
  run_app->callback([options, &invocation] {
    options->command.insert(options->command.end(), invocation.after_dashes.begin(),
                            invocation.after_dashes.end());
    invocation.status = run(*options);
  });
}

}  // namespace penstock::command
