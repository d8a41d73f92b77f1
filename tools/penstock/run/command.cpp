// penstock run: starts a program on several ranks with mpirun.
#include "core/base/system_error.hpp"
#include "core/config/load.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/run/environment.hpp"
#include "tools/penstock/run/launch.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>

namespace penstock::command {

namespace {

// Long enough for the other ranks to print their messages: if a script has ended in an exception,
// the other ranks stay for a second before they end (penstock/common/uncaught.py).
constexpr double kGraceSeconds = 3;
constexpr int kWrongCall = 2;

struct RunOptions {
  std::string config;
  bool no_prefix = false;
  LaunchOptions launch;
};

int refuse(std::string_view message) {
  fail(message);
  return kWrongCall;
}

// Checks the configuration before any rank starts, for one message instead of one from every rank.
Status check_configuration(const RunOptions& options) {
  const std::string file = options.config.empty() ? config_path_from_environment() : options.config;
  return file.empty() ? Status() : check_config_file(file, {}).status();
}

int run(RunOptions& options) {
  LaunchOptions& launched = options.launch;
  if (launched.command.empty())
    return refuse("no program to run was given; example: penstock run -np 2 -- python3 train.py");
  if (const Status status = check_configuration(options); !status.ok())
    return refuse(status.message());
  if (!launched.hosts.empty() && access(launched.hosts.c_str(), R_OK) != 0)
    return refuse(cannot_read(launched.hosts, "the file of hosts", errno).message());
  if (find_program("mpirun").empty())
    return fail(
        "mpirun is not on the PATH; install Open MPI (Debian: apt-get install openmpi-bin), or run "
        "tools/setup");
  std::string& program = launched.command.front();
  program = program_to_run(program);
  if (program.find('/') == std::string::npos && find_program(program).empty())
    return refuse(fmt::format("the program {} is not on the PATH", program));
  if (!options.config.empty()) {
    const std::string path = std::filesystem::absolute(configuration_file(options.config)).string();
    // The first variable has priority over the program's argument of init(), as a command line
    // should.
    for (const char* name : {"PENSTOCK_RUN_CONFIG", "PENSTOCK_CONFIG"})
      setenv(name, path.c_str(), 1);
  }
  set_rendezvous_place(launched.hosts);
  launched.prefix = !options.no_prefix;
  return launch(launched);
}

}  // namespace

void add_run(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<RunOptions>();
  LaunchOptions& launched = options->launch;
  launched.grace_s = kGraceSeconds;
  CLI::App* run_app = app.add_subcommand(
      "run",
      "Run a program on several ranks with mpirun: penstock run -np N [OPTIONS] -- PROGRAM ...");
  run_app->prefix_command();
  run_app->footer(
      "-np N means -n N. The options of run end before PROGRAM. All words after PROGRAM are its\n"
      "arguments, with or without -- before it.\n"
      "\n"
      "If this command lies in a checkout's build folder, `python` and `python3` without a path\n"
      "mean the interpreters of the checkout's .venv, unless another virtual environment is\n"
      "active. Ranks on other hosts receive the variables PENSTOCK_*, HOROVOD_*, PYTHON*, OMP_*,\n"
      "PATH and further ones (-x). Every rank also has torchrun's variables (RANK, WORLD_SIZE,\n"
      "LOCAL_RANK, MASTER_ADDR, MASTER_PORT, ...).\n"
      "\n"
      "When a rank has failed, the other ranks have the time of --grace to print their errors and\n"
      "to end. Then the command kills them, even if they are stopped or busy. At the end the\n"
      "command prints which rank failed first, and how. The exit status is 0 if every rank has\n"
      "reported success, otherwise the status of the rank that failed first; 2 if no program was\n"
      "started, because of a wrong call or configuration; 130 after Ctrl-C. SIGUSR1 and SIGUSR2\n"
      "go to the programs of all ranks.\n"
      "\n"
      "Example: penstock run -np 4 --config conf/dgc.toml -- python3 train.py");
  run_app->add_option("-n,--ranks,--np", launched.ranks, "number of ranks")
      ->required()
      ->check(whole_from(1, 65536));
  run_app
      ->add_option(
          "--config", options->config,
          "the configuration, checked before the start; the program's call of init() cannot "
          "replace it")
      ->type_name("FILE");
  run_app
      ->add_option("--hosts", launched.hosts,
                   "a file of hosts, in the format of mpirun's --hostfile")
      ->type_name("FILE");
  run_app
      ->add_option("--grace", launched.grace_s,
                   "seconds that the other ranks have to end after a rank has failed")
      ->check(number_from(0, 1e6))
      ->capture_default_str()
      ->type_name("SECONDS");
  run_app->add_flag("--no-prefix", options->no_prefix, "print lines without the rank before them");
  run_app
      ->add_option("-x,--export", launched.exported,
                   "a further variable for ranks on other hosts; may be repeated")
      ->allow_extra_args(false)
      ->type_name("NAME[=VALUE]");
  run_app->callback([run_app, options, &invocation] {
    std::vector<std::string>& command = options->launch.command;
    command = run_app->remaining();
    if (!command.empty() && command.front().starts_with("-")) {
      invocation.status = refuse(
          fmt::format("run has no option {}; `penstock run --help` lists them", command.front()));
      return;
    }
    const std::vector<std::string>& further = invocation.after_dashes;
    // If no "--" stands before the program, this "--" belongs to the program.
    if (!command.empty() && invocation.has_dashes) command.push_back("--");
    command.insert(command.end(), further.begin(), further.end());
    invocation.status = run(*options);
  });
}

}  // namespace penstock::command
