#include "core/config/load.hpp"

#include "core/base/nearest.hpp"
#include "core/base/own_directory.hpp"
#include "core/base/read_file.hpp"
#include "core/config/former_names.hpp"
#include "core/config/reader.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>

namespace penstock {

namespace {

constexpr uintmax_t kMostBytes = 16u << 20;
constexpr int64_t kLongestStall = 366 * 86400;  // seconds

// "; did you mean \"conf/topk-residual.toml\"?", or empty.
std::string file_that_is_meant(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::error_code error;
  std::vector<std::string> known;
  for (fs::directory_iterator file(folder, error), end; !error && file != end;
       file.increment(error))
    if (file->path().extension() == ".toml") known.push_back(file->path().filename().string());
  std::sort(known.begin(), known.end());
  const std::string nearest = nearest_name(path.filename().string(), known);
  if (nearest.empty()) return {};
  return fmt::format("; did you mean \"{}\"?", (path.parent_path() / nearest).string());
}

Result<std::string> read_file(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    return not_found(
        "{}: there is no such configuration file{}; check init(config=...), --config or "
        "PENSTOCK_CONFIG",
        path, file_that_is_meant(path));
  }
  // To read a directory would fail later, and to read a pipe could wait forever.
  if (status.type() != fs::file_type::regular) {
    return invalid_argument("{}: not a plain file, expected a TOML file", path);
  }
  return read_whole_file(path, "the configuration file", kMostBytes);
}

}  // namespace

// Horovod's variables set keys that the TOML leaves open.
class EnvironmentMapping {
 public:
  static Status apply(Config& config, const GetEnvironment& environment) {
    if (!environment) return {};
    // An empty variable counts as missing.
    const auto value_of = [&](const char* variable) -> std::string_view {
      const char* value = environment(variable);
      return value == nullptr ? "" : value;
    };
    if (const std::string_view bytes = value_of(defaults::kFusionThreshold.variable);
        !bytes.empty()) {
      PENSTOCK_TRY(map_fusion_threshold(config, bytes));
    }
    const std::string_view timeline = value_of("HOROVOD_TIMELINE");
    // DYNAMIC is not a file: Horovod then waits for start_timeline, which Penstock always supports.
    if (!timeline.empty() && timeline != "DYNAMIC" && !config.given_.contains("timeline")) {
      config.runtime_.timeline = timeline;
      config.mapped_.push_back(
          fmt::format("HOROVOD_TIMELINE={}: runtime.timeline = \"{}\"", timeline, timeline));
    }
    const std::string_view profile = value_of("PENSTOCK_PROFILE");
    if (!profile.empty() && !config.given_.contains("profile")) {
      config.runtime_.profile = profile;
      config.mapped_.push_back(
          fmt::format("PENSTOCK_PROFILE={}: runtime.profile = \"{}\"", profile, profile));
    }
    PENSTOCK_TRY(map_check_parameters(config, value_of("PENSTOCK_CHECK_PARAMETERS")));
    PENSTOCK_TRY(map_log_level(config, "PENSTOCK_LOG_LEVEL", value_of("PENSTOCK_LOG_LEVEL")));
    if (value_of("PENSTOCK_LOG_LEVEL").empty())
      PENSTOCK_TRY(map_log_level(config, "HOROVOD_LOG_LEVEL", value_of("HOROVOD_LOG_LEVEL")));
    return map_stalls(config, value_of);
  }

 private:
  static Status map_check_parameters(Config& config, std::string_view asked) {
    if (asked.empty() || config.given_.contains("check_parameters")) return {};
    if (asked != "warning" && asked != "error" && asked != "off")
      return invalid_argument(
          "environment variable PENSTOCK_CHECK_PARAMETERS is \"{}\", expected \"warning\", "
          "\"error\" or \"off\"",
          asked);
    config.runtime_.check_parameters = asked;
    config.mapped_.push_back(fmt::format(
        "PENSTOCK_CHECK_PARAMETERS={}: runtime.check_parameters = \"{}\"", asked, asked));
    return {};
  }

  // Penstock's variable overrides the TOML, because it is set for one run. Horovod's variable
  // applies only if the TOML has no level, and has other names of levels.
  static Status map_log_level(Config& config, std::string_view variable, std::string_view text) {
    const bool is_ours = variable == "PENSTOCK_LOG_LEVEL";
    if (text.empty() || (!is_ours && config.given_.contains("log_level"))) return {};
    std::string level(text);
    for (char& letter : level) letter = static_cast<char>(std::tolower(letter));
    if (!is_ours && level == "trace") level = "debug";
    if (!is_ours && level == "fatal") level = "error";
    if (level != "debug" && level != "info" && level != "warning" && level != "error")
      return invalid_argument("environment variable {} is \"{}\", expected debug, info, warning{}",
                              variable, text, is_ours ? " or error" : ", error, trace or fatal");
    config.runtime_.log_level = level;
    config.mapped_.push_back(
        fmt::format("{}={}: runtime.log_level = \"{}\"", variable, text, level));
    return {};
  }

  // Horovod's stall check: for ranks that live but do not come.
  template <typename ValueOf>
  static Status map_stalls(Config& config, const ValueOf& value_of) {
    RuntimeConfig& runtime = config.runtime_;
    const auto map = [&](const char* variable, const char* key, double& target) -> Status {
      const std::string_view text = value_of(variable);
      if (text.empty() || config.given_.contains(key)) return {};
      int64_t seconds = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
      if (error != std::errc() || end != text.data() + text.size() || seconds < 0 ||
          seconds > kLongestStall)
        return invalid_argument(
            "environment variable {} is \"{}\", expected whole seconds, at most a year", variable,
            text);
      target = static_cast<double>(seconds);
      config.mapped_.push_back(fmt::format("{}={}: runtime.{} = {}", variable, text, key, seconds));
      return {};
    };
    const std::string_view disable = value_of("HOROVOD_STALL_CHECK_DISABLE");
    if (!disable.empty() && disable != "0") {
      if (!config.given_.contains("stall_warning_s")) runtime.stall_warning_s = 0;
      if (!config.given_.contains("busy_limit_s")) runtime.busy_limit_s = 0;
      config.mapped_.push_back(fmt::format(
          "HOROVOD_STALL_CHECK_DISABLE={}: no warnings about ranks that live, and no end of the "
          "wait for them",
          disable));
      return {};
    }
    PENSTOCK_TRY(
        map("HOROVOD_STALL_CHECK_TIME_SECONDS", "stall_warning_s", runtime.stall_warning_s));
    return map("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "busy_limit_s", runtime.busy_limit_s);
  }

  static Status map_fusion_threshold(Config& config, std::string_view text) {
    const auto& [variable, kind, plugin, option] = defaults::kFusionThreshold;
    int64_t bytes = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
    if (error != std::errc() || end != text.data() + text.size() || bytes < 0) {
      return invalid_argument("environment variable {} is \"{}\", expected a number of bytes",
                              variable, text);
    }
    for (uint64_t stage : config.stages()) {
      const Scheme scheme = config.at_step(stage);
      const InstanceConfig* scheduler = scheme.find(kind, scheme.scheduler);
      if (scheduler == nullptr || scheduler->plugin != plugin) continue;
      // Changes the base configuration, without the switches up to this stage.
      InstanceConfig& instance =
          config.base_.instances
              .try_emplace({kind, scheduler->name},
                           InstanceConfig{kind, scheduler->name, scheduler->plugin, {}, {}})
              .first->second;
      const Location where{fmt::format("environment variable {}", variable), 0, 0};
      if (!instance.options.try_emplace(option, Setting{bytes, where}).second) continue;
      config.mapped_.push_back(fmt::format("{}={}: {}.{}.{} = {}", variable, text, kind_name(kind),
                                           instance.name, option, bytes));
    }
    return {};
  }
};

std::string config_path_from_environment(const GetEnvironment& environment) {
  const char* path = environment("PENSTOCK_CONFIG");
  return path == nullptr ? std::string() : path;
}

std::string configuration_file(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!path.starts_with("conf/") || fs::exists(path, error)) return path;
  // Libraries and programs are in a folder below the installation folder.
  const fs::path installed = own_directory().parent_path() / "share/penstock" / path;
  return fs::exists(installed, error) ? installed.string() : path;
}

Result<Config> load_config_text(std::string_view text, const std::string& name,
                                const std::string& directory, const LoadOptions& options) {
  PENSTOCK_ASSIGN(Node root, parse_toml(text, name));
  PENSTOCK_TRY(replace_former_names(root));
  std::error_code error;
  const std::filesystem::path absolute =
      std::filesystem::absolute(directory.empty() ? "." : directory, error);
  if (error) return not_found("{}: the directory {} cannot be found", name, directory);
  ConfigReader reader(absolute.string(), options.allow_runtime);
  PENSTOCK_ASSIGN(Config config, reader.read(root, name));
  PENSTOCK_TRY(EnvironmentMapping::apply(config, options.environment));
  return config;
}

Result<Config> load_config_file(const std::string& path, const LoadOptions& options) {
  const std::string file = configuration_file(path);
  PENSTOCK_ASSIGN(const std::string text, read_file(file));
  return load_config_text(text, file, std::filesystem::path(file).parent_path().string(), options);
}

Result<RunConfig> load_run_config(const std::string& path, const std::string& text,
                                  const LoadOptions& options) {
  const auto variable = [&](const char* name) -> std::string {
    const char* value = options.environment ? options.environment(name) : nullptr;
    return value == nullptr ? "" : value;
  };
  const auto from_file = [&](const std::string& file, std::string choice) -> Result<RunConfig> {
    PENSTOCK_ASSIGN(Config config, load_config_file(file, options));
    return RunConfig{std::move(config), std::move(choice)};
  };
  if (const std::string file = variable("PENSTOCK_RUN_CONFIG"); !file.empty()) {
    const std::string given = !text.empty()   ? "the text given to init"
                              : !path.empty() ? fmt::format("{}, given to init", path)
                                              : "";
    return from_file(file, fmt::format("configuration {} of penstock run --config{}", file,
                                       given.empty() ? "" : "; it wins over " + given));
  }
  if (!text.empty()) {
    PENSTOCK_ASSIGN(Config config, load_config_text(text, "configuration text", ".", options));
    return RunConfig{std::move(config), "configuration from the text given to init"};
  }
  if (!path.empty()) return from_file(path, fmt::format("configuration {}, given to init", path));
  if (const std::string file = variable("PENSTOCK_CONFIG"); !file.empty())
    return from_file(file, fmt::format("configuration {} of PENSTOCK_CONFIG", file));
  PENSTOCK_ASSIGN(Config config, default_config(options));
  return RunConfig{std::move(config),
                   "no configuration was given: gradients are not compressed, and the launcher "
                   "decides the transport"};
}

Result<Config> default_config(const LoadOptions& options) {
  return load_config_text("", "", "", options);
}

}  // namespace penstock
