// penstock new: writes a complete, working plugin that its author then changes.
#include "core/plugin/record.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/templates.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <memory>

namespace penstock::command {

namespace {

struct NewOptions {
  std::string kind;
  std::string name;
  std::string directory = ".";
};

// The class name for a plugin: "my-method" -> "MyMethod". A plugin's name may begin with a digit, a
// class name may not.
std::string class_name(std::string_view name) {
  std::string result;
  bool capital = true;
  for (const char c : name) {
    if (c == '-' || c == '_') {
      capital = true;
      continue;
    }
    result += capital ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    capital = false;
  }
  return std::isdigit(static_cast<unsigned char>(result.empty() ? '0' : result[0])) != 0
             ? "Method" + result
             : result;
}

std::string replace_all(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

// The kind of the plugin. A composite is a collective with a separate template.
std::string kind_of(const NewOptions& options) {
  return options.kind == "composite" ? "collective" : options.kind;
}

std::string fill(std::string_view text, const NewOptions& options) {
  std::string result = replace_all(std::string(text), "@NAME@", options.name);
  result = replace_all(std::move(result), "@CLASS@", class_name(options.name));
  return replace_all(std::move(result), "@KIND@", kind_of(options));
}

// The templates, and the names of the files that are made from them.
std::vector<std::pair<std::string, std::string>> files(const NewOptions& options) {
  return {{options.kind + ".cpp.in", options.name + ".cpp"},
          {options.kind + "_test.cpp.in", options.name + "_test.cpp"},
          {options.kind + ".md.in", "README.md"},
          {options.kind + ".toml.in", options.name + ".toml"},
          {"CMakeLists.txt.in", "CMakeLists.txt"}};
}

Status write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) return not_found("{} could not be written; is the folder writable?", path.string());
  return {};
}

// Refuses the id of another plugin, because two plugins with one id cannot be used together. This
// includes the plugins that come with Penstock, even if they are not installed beside this command.
Status check_id_is_free(const NewOptions& options) {
  const std::string id = kind_of(options) + "/" + options.name;
  const std::span<const std::string_view> shipped = shipped_plugins();
  if (std::find(shipped.begin(), shipped.end(), id) != shipped.end())
    return failed_precondition(
        "the id {} belongs to a plugin that comes with Penstock; choose another name", id);
  Plugins plugins({});
  const PluginFile* taken =
      plugins.registry().find(*kind_from_name(kind_of(options)), options.name);
  if (taken == nullptr) return {};
  return failed_precondition("the id {} is taken by {}; choose another name", taken->record.id,
                             taken->path);
}

Status make(const NewOptions& options, const std::filesystem::path& folder) {
  if (!kind_from_name(kind_of(options)))
    return invalid_argument(
        "kind is \"{}\", expected compressor, memory, collective, composite or scheduler",
        options.kind);
  if (!is_plugin_name(options.name))
    return invalid_argument(
        "name is \"{}\", expected lower-case letters, digits, '-' and '_', beginning with a letter "
        "or digit",
        options.name);
  PENSTOCK_TRY(check_id_is_free(options));
  std::error_code error;
  if (std::filesystem::exists(folder, error))
    return failed_precondition(
        "{} exists already and was not changed; choose another name or "
        "--directory",
        folder.string());
  std::filesystem::create_directories(folder, error);
  if (error)
    return failed_precondition("{} could not be made: {}", folder.string(), error.message());
  for (const auto& [source, target] : files(options)) {
    for (const Template& each : templates())
      if (each.name == source) PENSTOCK_TRY(write_file(folder / target, fill(each.text, options)));
  }
  return {};
}

int run(const NewOptions& options) {
  const std::filesystem::path folder =
      (std::filesystem::path(options.directory) / options.name).lexically_normal();
  const Status status = make(options, folder);
  if (!status.ok()) return fail(status.message());
  const std::string where = folder.string();
  print(
      fmt::format("made {0}/\n\nnext:\n"
                  "  cmake -S {0} -B {0}/build -DCMAKE_PREFIX_PATH=WHERE_THE_SDK_IS && cmake "
                  "--build {0}/build && ctest --test-dir {0}/build\n"
                  "  penstock check {0}/build/plugins/{1}-{2}.so\n"
                  "  penstock config check {0}/{2}.toml\n\n"
                  "The SDK is installed from Penstock's tree by\n"
                  "  cmake --install build/release --component sdk --prefix WHERE_THE_SDK_IS",
                  where, kind_of(options), options.name));
  return 0;
}

}  // namespace

void add_new(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<NewOptions>();
  CLI::App* new_app = app.add_subcommand("new", "Start a plugin of your own, outside the tree");
  new_app->footer(
      "Makes the folder DIR/NAME with source, test, build file, README and a configuration. The\n"
      "new plugin builds and works without a change. Example: penstock new compressor mine");
  new_app
      ->add_option(
          "KIND", options->kind,
          "compressor, memory, collective (a transport), composite (a collective over another) or "
          "scheduler")
      ->required();
  new_app->add_option("NAME", options->name, "name of the plugin")->required();
  new_app->add_option("--directory", options->directory, "parent of the new folder")
      ->type_name("DIR")
      ->capture_default_str();
  new_app->callback([options, &invocation] { invocation.status = run(*options); });
}

}  // namespace penstock::command
