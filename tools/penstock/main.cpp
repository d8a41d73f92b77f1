// The `penstock` command: starts runs, tells what plugins there are, checks configurations and
// plugins.
#include "tools/penstock/commands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

namespace penstock::command {
namespace {

int run(int argc, char** argv) {
  Invocation invocation;
  std::vector<std::string> arguments(argv + 1, argv + argc);
  // What follows "--" belongs to the program that `run` starts and is none of our options.
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (dashes != arguments.end()) invocation.after_dashes.assign(dashes + 1, arguments.end());
  arguments.erase(dashes, arguments.end());
  // mpirun's own spelling of the number of ranks, which the parser would read as `-n p`.
  std::replace(arguments.begin(), arguments.end(), std::string("-np"), std::string("--ranks"));
  std::reverse(arguments.begin(), arguments.end());

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
  add_doctor(app, invocation);
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
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
