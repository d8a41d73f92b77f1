// Reads a TOML file or text into a Config. Every error names file, line and column, the key and the
// value, the expected value, and the nearest known name.
#pragma once

#include "core/base/environment.hpp"
#include "core/config/config.hpp"

#include <string>

namespace penstock {

// PENSTOCK_CONFIG; empty when not set.
std::string config_path_from_environment(const GetEnvironment& environment = process_environment());

// The file for a path: the path itself. If a relative path conf/NAME does not exist and a scheme of
// that name is installed with Penstock, the installed file.
std::string configuration_file(const std::string& path);

struct LoadOptions {
  // Horovod's variables set values that the TOML does not set: HOROVOD_FUSION_THRESHOLD,
  // HOROVOD_TIMELINE, HOROVOD_LOG_LEVEL, HOROVOD_STALL_*. PENSTOCK_LOG_LEVEL overrides the TOML.
  GetEnvironment environment = process_environment();
  // False for the scheme of a single set: [runtime] is then an error.
  bool allow_runtime = true;
};

// NOT_FOUND for a file that cannot be read, INVALID_ARGUMENT for a file with an error.
Result<Config> load_config_file(const std::string& path, const LoadOptions& options = {});
// `name` stands for the file in messages; relative paths in the text are relative to `directory`.
Result<Config> load_config_text(std::string_view text, const std::string& name,
                                const std::string& directory, const LoadOptions& options = {});
// The configuration without a file: no compression, no memory, collective "auto", fusion.
Result<Config> default_config(const LoadOptions& options = {});

// The configuration of a run, and a sentence about its source.
struct RunConfig {
  Config config;
  std::string choice;
};
// The first of these sources: `penstock run --config` (PENSTOCK_RUN_CONFIG); the text or else the
// file that the program gave; PENSTOCK_CONFIG; the default.
Result<RunConfig> load_run_config(const std::string& path, const std::string& text,
                                  const LoadOptions& options = {});

}  // namespace penstock
