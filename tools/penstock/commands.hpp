// The sub-commands of `penstock` and their common functions.
#pragma once

#include "core/config/config.hpp"
#include "core/fit/rules.hpp"
#include "core/plugin/host.hpp"
#include "core/plugin/registry.hpp"
#include "tools/penstock/output.hpp"

#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace penstock::command {

// The call of the command. main fills it before a sub-command runs; the sub-command sets `status`,
// the exit status.
struct Invocation {
  std::vector<std::string> after_dashes;  // the arguments after "--"
  bool has_dashes = false;
  int status = 0;
};

// Each function adds its sub-command to `app`. The sub-command's callback runs it and sets
// invocation.status.
void add_run(CLI::App& app, Invocation& invocation);
void add_plugins(CLI::App& app, Invocation& invocation);
void add_config(CLI::App& app, Invocation& invocation);
void add_check(CLI::App& app, Invocation& invocation);
void add_new(CLI::App& app, Invocation& invocation);
void add_plan(CLI::App& app, Invocation& invocation);
void add_doctor(CLI::App& app, Invocation& invocation);

// Validators for options that are numbers; both ends are allowed. The error message distinguishes a
// text that is no number from a number out of range. NaN counts as no number.
CLI::Validator whole_from(uint64_t least, uint64_t most);
CLI::Validator number_from(double least, double most);

// Adds the flag --json.
void add_json_flag(CLI::App& app, bool& json);
// Adds the option --plugin-path, which may be repeated.
void add_plugin_path(CLI::App& app, std::vector<std::string>& directories);

// Checks a configuration file for everything that a run would refuse before its first step, as far
// as the file shows it. This is the result of `config check`.
Result<FitAdvice> check_config_file(const std::string& file,
                                    const std::vector<std::string>& plugin_path);

// A registry with the plugin host that it needs. `directories` are the user's; relative paths start
// at the working directory. They are searched before the directories that every run searches.
class Plugins {
 public:
  explicit Plugins(const std::vector<std::string>& directories, bool allow_insecure = false);
  // The error of the scan. The registry can be used even if there is an error.
  const Status& problem() const { return problem_; }
  Registry& registry() { return registry_; }

 private:
  Log log_;
  Host host_;
  Registry registry_;
  Status problem_;
};

// A configuration and the plugins that a run with it would find.
struct OpenedConfig {
  Config config;
  std::unique_ptr<Plugins> plugins;
};
// Opens the configuration `file`. An empty `file` means the default configuration of a run.
Result<OpenedConfig> open_config(const std::string& file,
                                 const std::vector<std::string>& plugin_path);

// The folder of this program.
std::string program_directory();
// The full path of a program, as a shell would find it; empty if there is no such program.
std::string find_program(std::string_view name);

// The result of a program: the text of both its outputs and its exit status. The status is 127 if
// the program cannot be executed; -1 if it could not be forked, was ended by a signal, or did not
// end in time.
struct Ran {
  int status = -1;
  std::string output;
};
// Runs a program. Waits for at most `seconds`, then kills the program and its children.
Ran run_program(const std::vector<std::string>& arguments, double seconds);
// The flags that mpirun needs to start a run on this machine.
std::vector<std::string> mpirun_flags();

}  // namespace penstock::command
