// The sub-commands and what they share.
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

// Filled by main before a sub-command runs; `status` is the exit status it leaves.
struct Invocation {
  std::vector<std::string> after_dashes;  // what followed "--"
  bool has_dashes = false;
  int status = 0;
};

// Each adds its sub-command; the callback runs it and sets invocation.status.
void add_run(CLI::App& app, Invocation& invocation);
void add_plugins(CLI::App& app, Invocation& invocation);
void add_config(CLI::App& app, Invocation& invocation);
void add_check(CLI::App& app, Invocation& invocation);
void add_new(CLI::App& app, Invocation& invocation);
void add_plan(CLI::App& app, Invocation& invocation);
void add_doctor(CLI::App& app, Invocation& invocation);

// For options that are numbers, both ends included. What is no number is told apart from one that
// is out of range; NaN is none.
CLI::Validator whole_from(uint64_t least, uint64_t most);
CLI::Validator number_from(double least, double most);

// Adds --json.
void add_json_flag(CLI::App& app, bool& json);
// Adds the repeatable --plugin-path.
void add_plugin_path(CLI::App& app, std::vector<std::string>& directories);

// All that a run refuses before its first step, as far as a file can tell: what `config check`
// says.
Result<FitAdvice> check_config_file(const std::string& file,
                                    const std::vector<std::string>& plugin_path);

// A registry with the host it needs. `directories` as given by the user, relative ones counted from
// the working directory; they come before the ones every run searches.
class Plugins {
 public:
  explicit Plugins(const std::vector<std::string>& directories, bool allow_insecure = false);
  // What the scan found wrong; the registry can be used all the same.
  const Status& problem() const { return problem_; }
  Registry& registry() { return registry_; }

 private:
  Log log_;
  Host host_;
  Registry registry_;
  Status problem_;
};

// A configuration and the plugins that a run under it would find.
struct OpenedConfig {
  Config config;
  std::unique_ptr<Plugins> plugins;
};
// Empty `file`: that of a run which is given none.
Result<OpenedConfig> open_config(const std::string& file,
                                 const std::vector<std::string>& plugin_path);

// The folder this program lies in.
std::string program_directory();
// The full path of a program, as a shell would find it; empty where there is none.
std::string find_program(std::string_view name);

// What a program said on both of its outputs, and its exit status; -1 where it could not be
// started.
struct Ran {
  int status = -1;
  std::string output;
};
// Waits for at most `seconds`, then kills the program.
Ran run_program(const std::vector<std::string>& arguments, double seconds);
// Flags with which mpirun starts a run on this machine.
std::vector<std::string> mpirun_flags();

}  // namespace penstock::command
