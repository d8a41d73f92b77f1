// penstock run: a program on several ranks, by mpirun.
#include "core/config/load.hpp"
#include "tools/penstock/commands.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
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

int exec_mpirun(const RunOptions& options) {
  std::vector<std::string> arguments = {"mpirun", "-np", std::to_string(options.ranks)};
  for (const std::string& flag : mpirun_flags()) arguments.push_back(flag);
  if (!options.hosts.empty()) arguments.insert(arguments.end(), {"--hostfile", options.hosts});
  if (!options.config.empty()) {
    const std::string path = std::filesystem::absolute(options.config).string();
    setenv("PENSTOCK_CONFIG", path.c_str(), 1);
  }
  for (const char* name : {"PENSTOCK_CONFIG", "PENSTOCK_PLUGIN_DIRECTORY"})
    if (std::getenv(name) != nullptr) arguments.insert(arguments.end(), {"-x", name});
  arguments.insert(arguments.end(), options.command.begin(), options.command.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execvp("mpirun", argv.data());
  return fail(fmt::format("mpirun could not be started: {}", std::strerror(errno)));
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
  return exec_mpirun(options);
}

}  // namespace

void add_run(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* run_app = app.add_subcommand("run", "Run a program on several ranks with mpirun");
  run_app->footer(
      "-np N may be written for -n N. The exit status is mpirun's.\n"
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
