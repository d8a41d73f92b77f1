// penstock config: reads configurations and checks them against the plugins, without a run.
#include "core/base/printable.hpp"
#include "core/config/keys.hpp"
#include "core/config/load.hpp"
#include "core/fit/resolve.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/fit/matrix.hpp"
#include "tools/penstock/fit/sample_traffic.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

namespace penstock::command {

namespace {

struct CheckedFiles {
  std::vector<std::string> files;
  std::vector<std::string> plugin_path;
  bool json = false;
};

Result<Config> config_of_a_run() {
  PENSTOCK_ASSIGN(RunConfig run, load_run_config("", ""));
  return std::move(run.config);
}

}  // namespace

Result<OpenedConfig> open_config(const std::string& file,
                                 const std::vector<std::string>& plugin_path) {
  PENSTOCK_ASSIGN(Config config, file.empty() ? config_of_a_run() : load_config_file(file));
  std::vector<std::string> directories = plugin_path;
  for (const std::string& directory : config.runtime().plugin_path)
    directories.push_back(directory);
  auto plugins = std::make_unique<Plugins>(directories, config.runtime().allow_insecure_paths);
  PENSTOCK_TRY(plugins->problem());
  settle_transport(config, plugins->registry());
  return OpenedConfig{std::move(config), std::move(plugins)};
}

Result<FitAdvice> check_config_file(const std::string& file,
                                    const std::vector<std::string>& plugin_path) {
  PENSTOCK_ASSIGN(const OpenedConfig opened, open_config(file, plugin_path));
  return check_fit_of_config(opened.config, opened.plugins->registry());
}

namespace {

int check_files(const CheckedFiles& options) {
  Json json = Json::array();
  int failed = 0;
  for (const std::string& file : options.files) {
    const Result<FitAdvice> advice = check_config_file(file, options.plugin_path);
    const Status& status = advice.status();
    if (!status.ok()) ++failed;
    const auto warnings = advice.ok() ? advice.value().warnings : std::vector<std::string>();
    json.push_back(Json{
        {"file", file}, {"ok", status.ok()}, {"error", status.message()}, {"warnings", warnings}});
    if (options.json) continue;
    if (status.ok()) print(fmt::format("ok {}", printable_piece(file)));
    // Most messages begin with file, line and column; messages about plugins may not.
    else if (status.message().find(printable_piece(file)) != std::string_view::npos)
      print(fmt::format("error {}", status.message()));
    else
      print(fmt::format("error {}: {}", printable_piece(file), status.message()));
    for (const std::string& warning : warnings)
      print(fmt::format("  warning: {}", printable_piece(warning)));
  }
  if (options.json) print_json(json);
  return failed == 0 ? 0 : 1;
}

// ---- The keys of a configuration ----

int describe(bool as_json) {
  Json json = Json::array();
  for (const ConfigTable* each : config_tables()) {
    Table table({"KEY", "TYPE", "DEFAULT", "RANGE", "MEANING"});
    for (const ConfigKey& key : each->keys) {
      table.add({std::string(key.name), key.type(), std::string(key.initial), key.range(),
                 std::string(key.summary)});
      json.push_back(Json{{"table", each->title},
                          {"key", key.name},
                          {"type", key.type()},
                          {"default", key.initial},
                          {"range", key.range()},
                          {"summary", key.summary},
                          {"equal_on_all_ranks", key.agreed}});
    }
    if (!as_json) print(fmt::format("{}\n\n{}\n", each->title, table.text()));
  }
  if (as_json) print_json(json);
  return 0;
}

// ---- The bytes that a scheme moves ----

struct TrafficOptions {
  std::vector<std::string> files;
  std::vector<std::string> plugin_path;
  uint32_t ranks = 4;
  uint32_t ranks_per_host = 1;
  bool json = false;
};

Result<std::vector<StageTraffic>> traffic_of_file(const std::string& file,
                                                  const TrafficOptions& options) {
  PENSTOCK_ASSIGN(const OpenedConfig opened, open_config(file, options.plugin_path));
  PENSTOCK_TRY(check_fit_of_config(opened.config, opened.plugins->registry()).status());
  return sample_traffic(opened.config, opened.plugins->registry(), options.ranks,
                        options.ranks_per_host);
}

// The greatest number of ranks at which the scheme moves less than dense: "any number", "8".
std::string wins_up_to(const StageTraffic& stage) {
  if (stage.bytes.open) return "depends on values";
  if (stage.loses_from == 0) return stage.moved < stage.dense_moved ? "any number" : "as dense";
  return stage.loses_from <= 2 ? "never" : fmt::format("{}", stage.loses_from - 1);
}

int traffic(const TrafficOptions& options) {
  Json json = Json::array();
  Table table({"FILE", "FROM STEP", "MOVED", "DENSE MOVES", "LESS BY", "WINS UP TO RANKS"});
  for (const std::string& file : options.files) {
    const Result<std::vector<StageTraffic>> stages = traffic_of_file(file, options);
    if (!stages.ok()) return fail(std::string(stages.status().message()));
    for (const StageTraffic& stage : stages.value()) {
      const bool known = !stage.bytes.open;
      json.push_back(Json{{"file", file},
                          {"from_step", stage.from_step},
                          {"ranks", options.ranks},
                          {"ranks_per_host", options.ranks_per_host},
                          {"moved_bytes", known ? Json(stage.moved) : Json(nullptr)},
                          {"dense_moved_bytes", stage.dense_moved},
                          {"at_most", stage.bytes.bound},
                          {"wins_up_to_ranks", wins_up_to(stage)}});
      const std::string most = stage.bytes.bound ? "up to " : "";
      table.add({file, fmt::format("{}", stage.from_step),
                 known ? most + bytes_text(stage.moved) : "-", bytes_text(stage.dense_moved),
                 known ? fmt::format("{:.1f} x", stage.dense_moved / stage.moved) : "-",
                 wins_up_to(stage)});
    }
  }
  if (options.json)
    print_json(json);
  else
    print(table.text());
  return 0;
}

}  // namespace

namespace {

// A script whose variable is empty names no file, and does not mean the defaults.
const CLI::Validator& is_named() {
  static const CLI::Validator validator(
      [](std::string& name) {
        return name.empty() ? std::string("a name is empty, expected the path of a TOML file")
                            : std::string();
      },
      "", "named");
  return validator;
}

}  // namespace

void add_config(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<CheckedFiles>();
  CLI::App* config =
      app.add_subcommand("config", "Check configurations, list their keys, count their bytes");
  config->require_subcommand(1);
  config->footer("Example: penstock config check conf/dgc.toml");
  CLI::App* check_app = config->add_subcommand(
      "check", "Read each file, load the plugins it names and check every option");
  check_app->footer(
      "Prints \"ok FILE\" or the error with line and column; exit status 1 if a file is wrong.\n"
      "Example: penstock config check conf/*.toml");
  check_app->add_option("FILE", options->files, "TOML files")->required()->check(is_named());
  add_plugin_path(*check_app, options->plugin_path);
  add_json_flag(*check_app, options->json);
  check_app->callback([options, &invocation] { invocation.status = check_files(*options); });

  auto describes_json = std::make_shared<bool>(false);
  CLI::App* describe_app = config->add_subcommand(
      "describe", "Every key that a file may have, except the options of plugins");
  describe_app->footer("Example: penstock config describe --json");
  add_json_flag(*describe_app, *describes_json);
  describe_app->callback(
      [describes_json, &invocation] { invocation.status = describe(*describes_json); });

  auto moved = std::make_shared<TrafficOptions>();
  CLI::App* traffic_app = config->add_subcommand(
      "traffic", "Bytes that a rank sends in a step under each file, and under dense all-reduces");
  traffic_app->footer(
      "For a model of usual shapes, 106 MB of float32. A gathered payload goes to every other\n"
      "rank, but a summed payload does not. So a gather sends less than dense only up to some\n"
      "number of ranks.\n"
      "\"up to\": the largest possible number of bytes. \"depends on values\": the largest number\n"
      "would be misleading (adacomp, inceptionn); a run warns after ten steps if it sends more\n"
      "than dense would.\n"
      "Example: penstock config traffic conf/*.toml --ranks 8");
  traffic_app->add_option("FILE", moved->files, "TOML files")->required()->check(is_named());
  traffic_app->add_option("--ranks", moved->ranks, "ranks that exchange")
      ->check(whole_from(2, 65536))
      ->capture_default_str();
  traffic_app
      ->add_option("--ranks-per-host", moved->ranks_per_host,
                   "ranks that share a host: route hierarchical adds within hosts first")
      ->check(whole_from(1, 65536))
      ->capture_default_str();
  add_plugin_path(*traffic_app, moved->plugin_path);
  add_json_flag(*traffic_app, moved->json);
  traffic_app->callback([moved, &invocation] { invocation.status = traffic(*moved); });
}

}  // namespace penstock::command
