#include "tools/penstock/plan/schemes.hpp"

#include "core/config/load.hpp"
#include "core/fit/resolve.hpp"
#include "tools/penstock/fit/matrix.hpp"

#include <algorithm>
#include <filesystem>

namespace penstock::command {

namespace {

namespace fs = std::filesystem;

constexpr const char* kDense = "[scheme]\ncompressor = \"none\"\nscheduler = \"fusion\"\n";
constexpr const char* kAnyShipped = "conf/s-sgd.toml";

// Options that ignore the environment variables of this process.
LoadOptions pure() {
  return {.environment = [](const char*) -> const char* { return nullptr; }};
}

// Refuses a file that names a transport between devices, because its time is not predicted.
Status check_memory_of(const Config& config) {
  const std::string device = config.at_step(0).device_transport;
  if (device.empty()) return {};
  return failed_precondition(
      "transport.device = \"{}\": the time of messages between devices and of methods on a device "
      "is not predicted; leave the key out to predict the scheme in host memory",
      device);
}

// Opens schemes. Schemes that name no plugin path share one search for plugins.
class Opener {
 public:
  explicit Opener(const std::vector<std::string>& plugin_path) : plugin_path_(plugin_path) {}

  Result<SchemeFile> open(Config config, std::string name) {
    SchemeFile file;
    file.name = std::move(name);
    PENSTOCK_TRY(check_memory_of(config));
    file.directories = plugin_path_;
    for (const std::string& directory : config.runtime().plugin_path)
      file.directories.push_back(directory);
    PENSTOCK_ASSIGN(file.plugins, plugins_for(file.directories, config.runtime()));
    settle_transport(config, file.plugins->registry(), launched_by(pure().environment));
    PENSTOCK_TRY(check_fit_of_config(config, file.plugins->registry()).status());
    file.runtime = config.runtime();
    file.scheme = config.at_step(config.stages().back());
    return file;
  }

 private:
  Result<std::shared_ptr<Plugins>> plugins_for(const std::vector<std::string>& directories,
                                               const RuntimeConfig& runtime) {
    const bool is_usual = runtime.plugin_path.empty() && !runtime.allow_insecure_paths;
    if (is_usual && usual_ != nullptr) return usual_;
    auto plugins = std::make_shared<Plugins>(directories, runtime.allow_insecure_paths);
    PENSTOCK_TRY(plugins->problem());
    if (is_usual) usual_ = plugins;
    return plugins;
  }

  const std::vector<std::string>& plugin_path_;
  std::shared_ptr<Plugins> usual_;
};

// Replaces each folder by the files in it.
Result<std::vector<std::string>> files_of(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    const size_t first = files.size();
    for (const fs::directory_entry& entry : fs::directory_iterator(path, error))
      if (entry.path().extension() == ".toml") files.push_back(entry.path().string());
    if (files.size() == first)
      return not_found("{}: there is no file *.toml in this folder, expected schemes", path);
    std::sort(files.begin() + static_cast<ptrdiff_t>(first), files.end());
  }
  return files;
}

}  // namespace

Result<std::vector<SchemeFile>> open_schemes(std::vector<std::string> paths,
                                             const std::vector<std::string>& plugin_path) {
  if (paths.empty()) paths = {fs::path(configuration_file(kAnyShipped)).parent_path().string()};
  PENSTOCK_ASSIGN(const std::vector<std::string> files, files_of(paths));
  Opener opener(plugin_path);
  std::vector<SchemeFile> schemes;
  PENSTOCK_ASSIGN(Config dense, load_config_text(kDense, kDenseName, ".", pure()));
  PENSTOCK_ASSIGN(schemes.emplace_back(), opener.open(std::move(dense), kDenseName));
  for (const std::string& file : files) {
    PENSTOCK_ASSIGN(Config config, load_config_file(file, pure()));
    const std::string name = fs::path(file).stem().string();
    for (const SchemeFile& other : schemes)
      if (other.name == name)
        return invalid_argument(
            "{}: a scheme \"{}\" is there already, expected another name for each; rename the file",
            file, name);
    auto opened = opener.open(std::move(config), name);
    // Most messages begin with file, line and column; messages about plugins may not.
    const bool is_named = opened.status().message().find(file) != std::string_view::npos;
    PENSTOCK_TRY(is_named ? opened.status() : opened.status().with_context(file));
    schemes.push_back(std::move(opened.value()));
  }
  return schemes;
}

}  // namespace penstock::command
