// penstock config check: reads configurations and holds them against the plugins, without a run.
#include "core/config/load.hpp"
#include "core/plugin/resolve.hpp"
#include "tools/penstock/commands.hpp"

#include <fmt/format.h>

#include <memory>

namespace penstock::command {

namespace {

struct CheckOptions {
  std::vector<std::string> files;
  std::vector<std::string> plugin_path;
  bool json = false;
};

Status check_file(const std::string& file, const std::vector<std::string>& plugin_path) {
  PENSTOCK_ASSIGN(const Config config, load_config_file(file));
  std::vector<std::string> directories = plugin_path;
  for (const std::string& directory : config.runtime().plugin_path)
    directories.push_back(directory);
  Plugins plugins(directories, config.runtime().allow_insecure_paths);
  PENSTOCK_TRY(plugins.problem());
  return check_config(config, plugins.registry());
}

int check(const CheckOptions& options) {
  Json json = Json::array();
  int failed = 0;
  for (const std::string& file : options.files) {
    const Status status = check_file(file, options.plugin_path);
    if (!status.ok()) ++failed;
    json.push_back(Json{{"file", file}, {"ok", status.ok()}, {"error", status.message()}});
    if (options.json) continue;
    if (status.ok()) print(fmt::format("ok {}", file));
    // Most messages begin with file, line and column; those about plugins may not.
    else if (status.message().find(file) != std::string_view::npos)
      print(fmt::format("error {}", status.message()));
    else
      print(fmt::format("error {}: {}", file, status.message()));
  }
  if (options.json) print_json(json);
  return failed == 0 ? 0 : 1;
}

}  // namespace

void add_config(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* config = app.add_subcommand("config", "Check configurations");
  config->require_subcommand(1);
  config->footer("Example: penstock config check conf/dgc.toml");
  CLI::App* check_app = config->add_subcommand(
      "check", "Read each file, load the plugins it names and check every option");
  check_app->footer(
      "Prints \"ok FILE\" or the error with line and column; exit status 1 if any is wrong.\n"
      "Example: penstock config check conf/*.toml");
  check_app->add_option("FILE", options->files, "TOML files")->required();
  add_plugin_path(*check_app, options->plugin_path);
  add_json_flag(*check_app, options->json);
  check_app->callback([options, &invocation] { invocation.status = check(*options); });
}

}  // namespace penstock::command
