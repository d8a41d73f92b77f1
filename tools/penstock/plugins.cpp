// penstock plugins: lists the plugins, their options, and their combinations.
#include "core/base/nearest.hpp"
#include "core/base/printable.hpp"
#include "core/plugin/options.hpp"
#include "tools/penstock/check/tests.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/fit/matrix.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cmath>
#include <map>
#include <memory>

namespace penstock::command {

namespace {

struct PluginsOptions {
  std::vector<std::string> plugin_path;
  std::string wanted;  // NAME or KIND/NAME
  bool json = false;
};

Json default_value(const penstock_option& option) {
  if ((option.flags & PENSTOCK_OPTION_REQUIRED) != 0) return nullptr;
  switch (option.type) {
    case PENSTOCK_OPTION_BOOL:
      return option.default_integer != 0;
    case PENSTOCK_OPTION_INTEGER:
      return option.default_integer;
    case PENSTOCK_OPTION_REAL:
      return option.default_real;
    default:
      return std::string(view(option.default_text));
  }
}

// The end of a range for JSON. JSON has no infinity, so an open end is null.
Json bound(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json to_json(const penstock_option& option) {
  Json choices = Json::array();
  for (uint64_t i = 0; i < option.n_choices; ++i)
    choices.push_back(std::string(view(option.choices[i])));
  Json flags = Json::array();
  if ((option.flags & PENSTOCK_OPTION_REQUIRED) != 0) flags.push_back("required");
  if ((option.flags & PENSTOCK_OPTION_RANK_LOCAL) != 0) flags.push_back("rank_local");
  if ((option.flags & PENSTOCK_OPTION_OPEN_MINIMUM) != 0) flags.push_back("open_minimum");
  if ((option.flags & PENSTOCK_OPTION_OPEN_MAXIMUM) != 0) flags.push_back("open_maximum");
  const bool number = option.type == PENSTOCK_OPTION_INTEGER || option.type == PENSTOCK_OPTION_REAL;
  return Json{{"name", view(option.name)},
              {"type", option_type_name(option.type)},
              {"default", default_value(option)},
              {"range", option_range_text(option)},
              {"minimum", number ? bound(option.minimum) : Json(nullptr)},
              {"maximum", number ? bound(option.maximum) : Json(nullptr)},
              {"choices", choices},
              {"unit", view(option.unit)},
              {"summary", view(option.summary)},
              {"flags", flags}};
}

// The JSON object of a plugin. If the plugin can be loaded, it has the options, the state "usable"
// and an empty "problem".
Json to_json(const PluginFile& file, Registry& registry) {
  const Record& record = file.record;
  Json json{{"kind", kind_name(record.kind)},
            {"name", record.name},
            {"id", record.id},
            {"version", record.version},
            {"summary", record.summary},
            {"options", Json::array()},
            {"path", file.path},
            {"abi", fmt::format("{}.{}", record.abi_major, record.abi_minor)},
            {"license", record.license},
            {"source", record.source},
            {"state", "usable"},
            {"problem", ""}};
  // A damaged file may end the process that loads it.
  const TestOutcome alone = load_alone(registry, file);
  if (alone.verdict != Verdict::ok) {
    // A plugin is not faulty if this machine lacks a library that it needs.
    json["state"] = alone.verdict == Verdict::warning ? "lacks a library" : "not usable";
    json["problem"] = alone.reason;
    return json;
  }
  const auto plugin = registry.load(record.kind, record.name);
  for (uint64_t i = 0; plugin.ok() && i < plugin.value()->n_options; ++i)
    json["options"].push_back(to_json(*plugin.value()->options[i]));
  return json;
}

int list(const PluginsOptions& options) {
  Plugins plugins(options.plugin_path);
  Registry& registry = plugins.registry();
  Json json = Json::array();
  for (const PluginFile& file : registry.files()) json.push_back(to_json(file, registry));
  if (options.json) {
    print_json(json);
  } else {
    Table table({"KIND", "NAME", "VERSION", "SUMMARY"});
    for (const Json& plugin : json) {
      const auto problem = plugin["problem"].get<std::string>();
      const auto summary = plugin["summary"].get<std::string>();
      const auto state = plugin["state"].get<std::string>();
      table.add({plugin["kind"], plugin["name"], plugin["version"],
                 problem.empty() ? summary : state + ": " + problem});
    }
    print(table.text());
    for (const SkippedFile& skipped : registry.skipped())
      print(printable(fmt::format("skipped {}: {}", skipped.path, skipped.reason)));
  }
  if (!plugins.problem().ok()) return fail(plugins.problem().message());
  if (registry.files().empty()) {
    std::string searched;
    for (const Registry::Searched& where : registry.searched())
      searched += fmt::format("\n  {}: {}", where.directory, where.note);
    return fail("no plugin was found; looked in:" + searched);
  }
  return 0;
}

void print_plugin(const Json& plugin) {
  Table head({plugin["id"].get<std::string>(), plugin["summary"].get<std::string>()});
  head.add({"version",
            plugin["version"].get<std::string>() + ", ABI " + plugin["abi"].get<std::string>()});
  for (const char* key : {"license", "source", "path", "problem"})
    if (const auto text = plugin[key].get<std::string>(); !text.empty()) head.add({key, text});
  print(head.text());
  if (plugin["options"].empty()) return print("\nno options");
  Table table({"OPTION", "TYPE", "DEFAULT", "RANGE", "UNIT", "SUMMARY"});
  for (const Json& option : plugin["options"]) {
    std::string summary = option["summary"];
    for (const Json& flag : option["flags"])
      if (flag == "rank_local") summary += " (may differ between ranks)";
    const bool required = option["default"].is_null();
    table.add({option["name"], option["type"], required ? "required" : option["default"].dump(),
               option["range"], option["unit"], summary});
  }
  print("\n" + table.text());
}

int describe(const PluginsOptions& options) {
  Plugins plugins(options.plugin_path);
  Registry& registry = plugins.registry();
  Json found = Json::array();
  std::vector<std::string> known;
  for (const PluginFile& file : registry.files()) {
    known.push_back(file.record.id);
    known.push_back(file.record.name);
    if (file.record.id == options.wanted || file.record.name == options.wanted)
      found.push_back(to_json(file, registry));
  }
  if (found.empty())
    return fail(fmt::format("no plugin is called \"{}\"{}", options.wanted,
                            did_you_mean(options.wanted, known)));
  if (options.json) {
    print_json(found);
    return 0;
  }
  for (const Json& plugin : found) {
    if (&plugin != &found.front()) print("");
    print_plugin(plugin);
  }
  return 0;
}

Json to_json(const Matrix& matrix) {
  Json cells = Json::array();
  for (const MatrixCell& cell : matrix.cells)
    cells.push_back(Json{{matrix.rows, cell.row},
                         {"with", cell.column},
                         {"verdict", verdict_name(cell.verdict)},
                         {"note", cell.note}});
  return Json{{"about", matrix.about}, {"cells", cells}};
}

void print_matrix(const Matrix& matrix) {
  std::vector<std::string> head{matrix.rows};
  std::vector<std::vector<std::string>> rows;
  for (const MatrixCell& cell : matrix.cells) {
    if (rows.empty() || rows.back().front() != cell.row) rows.push_back({cell.row});
    if (rows.size() == 1) head.push_back(cell.column);
    rows.back().emplace_back(verdict_name(cell.verdict));
  }
  Table table(head);
  for (auto& row : rows) table.add(std::move(row));
  print(matrix.about + "\n\n" + table.text());
}

constexpr const char* kLegend =
    "ok    fits\n"
    "poor  runs, with a warning about this pair\n"
    "no    refused before the first step\n"
    "All other options have their defaults. `penstock plugins matrix NAME` gives the reason of\n"
    "each cell.";

// Prints the reasons of all cells of one plugin.
int print_reasons(const std::vector<Matrix>& matrices, const std::string& wanted) {
  Table table({"WITH", "VERDICT", "REASON"});
  std::vector<std::string> known;
  bool found = false;
  for (const Matrix& matrix : matrices)
    for (const MatrixCell& cell : matrix.cells) {
      if (known.empty() || known.back() != cell.row) known.push_back(cell.row);
      if (cell.row != wanted) continue;
      found = true;
      table.add({cell.column, std::string(verdict_name(cell.verdict)), cell.note});
    }
  if (!found)
    return fail(fmt::format("no compressor or scheduler is called \"{}\"{}", wanted,
                            did_you_mean(wanted, known)));
  print(table.text());
  return 0;
}

int matrix(const PluginsOptions& options) {
  Plugins plugins(options.plugin_path);
  const std::vector<Matrix> matrices = fit_matrices(plugins.registry());
  if (options.json) {
    Json json = Json::array();
    for (const Matrix& each : matrices) json.push_back(to_json(each));
    print_json(json);
    return 0;
  }
  if (!options.wanted.empty()) return print_reasons(matrices, options.wanted);
  for (const Matrix& each : matrices) {
    print_matrix(each);
    print("");
  }
  print(kLegend);
  return 0;
}

}  // namespace

void add_plugins(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<PluginsOptions>();
  CLI::App* plugins = app.add_subcommand("plugins", "List and describe plugins");
  plugins->require_subcommand(1);
  plugins->footer("Example: penstock plugins describe compressor/topk");

  CLI::App* list_app = plugins->add_subcommand("list", "All plugins that a run would find");
  list_app->footer("Example: penstock plugins list --json");
  list_app->callback([options, &invocation] { invocation.status = list(*options); });

  CLI::App* describe_app = plugins->add_subcommand("describe", "A plugin and its options");
  describe_app->footer("Example: penstock plugins describe compressor/topk");
  describe_app->add_option("NAME", options->wanted, "NAME or KIND/NAME")->required();
  describe_app->callback([options, &invocation] { invocation.status = describe(*options); });

  CLI::App* matrix_app = plugins->add_subcommand("matrix", "Which plugins work together");
  matrix_app->footer("Example: penstock plugins matrix topk");
  matrix_app->add_option("NAME", options->wanted,
                         "a compressor or scheduler: print the reason of each of its cells");
  matrix_app->callback([options, &invocation] { invocation.status = matrix(*options); });
  for (CLI::App* each : {list_app, describe_app, matrix_app}) {
    add_plugin_path(*each, options->plugin_path);
    add_json_flag(*each, options->json);
  }
}

}  // namespace penstock::command
