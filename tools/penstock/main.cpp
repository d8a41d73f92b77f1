// The `penstock` command: starts runs, lists plugins, checks configurations and plugins.
#include "core/base/nearest.hpp"
#include "core/base/printable.hpp"
#include "tools/penstock/commands.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <exception>
#include <sstream>

namespace penstock::command {
namespace {

// The error for a word in the place of a sub-command; empty if there is no error. The parser would
// report only that a sub-command is missing.
std::string wrong_command(const CLI::App& app, const std::vector<std::string>& arguments) {
  const CLI::App* at = &app;
  for (const std::string& argument : arguments) {
    std::vector<std::string> known;
    const CLI::App* next = nullptr;
    for (const CLI::App* each : at->get_subcommands(nullptr)) {
      known.push_back(each->get_name());
      if (each->get_name() == argument) next = each;
    }
    if (known.empty() || argument.substr(0, 1) == "-") return {};
    if (next == nullptr) {
      const std::string before = at == &app ? "" : at->get_name() + " ";
      return fmt::format("there is no command \"{}{}\"{}", before, argument,
                         did_you_mean(argument, known));
    }
    at = next;
  }
  return {};
}

int run(int argc, char** argv) {
  Invocation invocation;
  std::vector<std::string> arguments(argv + 1, argv + argc);
  // Arguments after "--" belong to the program that `run` starts; they are no options of penstock.
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (dashes != arguments.end()) invocation.after_dashes.assign(dashes + 1, arguments.end());
  invocation.has_dashes = dashes != arguments.end();
  arguments.erase(dashes, arguments.end());
  // "-np" is mpirun's spelling for the number of ranks; the parser would read it as `-n p`. A
  // second "-np" belongs to the program.
  const auto np = std::find(arguments.begin(), arguments.end(), "-np");
  if (np != arguments.end()) *np = "--ranks";

  CLI::App app("Penstock: distributed training with compressed gradients", "penstock");
  app.footer("Example: penstock run -np 4 --config conf/dgc.toml -- python3 train.py");
  app.set_version_flag("--version", fmt::format("penstock {} (plugin ABI {}.{})", PENSTOCK_VERSION,
                                                PENSTOCK_ABI_MAJOR, PENSTOCK_ABI_MINOR));
  app.require_subcommand(1);
  add_run(app, invocation);
  add_plugins(app, invocation);
  add_config(app, invocation);
  add_check(app, invocation);
  add_new(app, invocation);
  add_plan(app, invocation);
  add_doctor(app, invocation);
  if (const std::string wrong = wrong_command(app, arguments); !wrong.empty()) {
    fail(wrong);
    return 2;
  }
  // The parser takes the arguments from the end.
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    // The parser's message repeats the arguments unescaped.
    std::ostringstream said, wrong;
    const int status = app.exit(error, said, wrong);
    fmt::print("{}", printable_lines(said.str()));
    fmt::print(stderr, "{}", printable_lines(wrong.str()));
    return status == 0 ? 0 : 2;
  }
  return invocation.status;
}

}  // namespace
}  // namespace penstock::command

int main(int argc, char** argv) {
  try {
    return penstock::command::run(argc, argv);
  } catch (const std::exception& error) {
    return penstock::command::fail(error.what());
  }
}
