// From a TOML file or text to a Config. Every error names file, line and column, the key and the
// value, what was expected, and the nearest known name.
#pragma once

#include "core/base/environment.hpp"
#include "core/config/config.hpp"

#include <string>

namespace penstock {

// PENSTOCK_CONFIG; empty when not set.
std::string config_path_from_environment(const GetEnvironment& environment = process_environment());

// The file that a path stands for: itself; for a relative conf/NAME that is not there the scheme of
// that name among those installed with Penstock, where it is.
std::string configuration_file(const std::string& path);

struct LoadOptions {
  // Horovod's variables fill in what the TOML leaves open: HOROVOD_FUSION_THRESHOLD,
  // HOROVOD_TIMELINE, HOROVOD_LOG_LEVEL, HOROVOD_STALL_*. PENSTOCK_LOG_LEVEL comes before the TOML.
  GetEnvironment environment = process_environment();
  // False for the scheme of a single set: [runtime] is then an error.
  bool allow_runtime = true;
};

// NOT_FOUND for a file that cannot be read, INVALID_ARGUMENT for one that is wrong.
Result<Config> load_config_file(const std::string& path, const LoadOptions& options = {});
// `name` stands for the file in messages; relative paths in the text count from `directory`.
Result<Config> load_config_text(std::string_view text, const std::string& name,
                                const std::string& directory, const LoadOptions& options = {});
// No file: no compression, no memory, collective "auto", fusion.
Result<Config> default_config(const LoadOptions& options = {});

// The configuration of a run, and a sentence about where it came from.
struct RunConfig {
  Config config;
  std::string choice;
};
// The first of: `penstock run --config` (PENSTOCK_RUN_CONFIG); what the program gave, as text or
// else as a file; PENSTOCK_CONFIG; the default.
Result<RunConfig> load_run_config(const std::string& path, const std::string& text,
                                  const LoadOptions& options = {});

}  // namespace penstock
