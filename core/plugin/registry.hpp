// The plugins that exist and the plugins that are loaded. A scan only reads files; a plugin is
// loaded when it is first requested.
#pragma once

#include "core/base/mutex.hpp"
#include "core/config/load.hpp"
#include "core/plugin/loader.hpp"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace penstock {

// A plugin found by a scan. If it may not be loaded, `usable` gives the reason (trust, ABI).
struct PluginFile {
  std::string path;  // absolute, real
  Record record;
  uint64_t file_hash = 0;
  Status usable;
};

// A file of a scanned directory that is not a plugin, or a plugin that cannot be loaded because
// another file has its id.
struct SkippedFile {
  std::string path;
  std::string reason;
  std::string instead;  // path of that other file; a warning is due
};

struct RegistryOptions {
  // Searched in order; a relative directory is refused.
  std::vector<std::string> directories;
  bool allow_insecure = false;
};

// [control] except where stated. Plugins live as long as the registry's owner keeps the pointers.
class Registry {
 public:
  // `host` is handed to every plugin and must outlive them.
  Registry(const penstock_host* host, RegistryOptions options);

  // Reads the records of all *.so in the directories; a missing directory is only noted. MISMATCH,
  // naming both files, if two files that may be loaded have one id; a file that may not be loaded
  // is skipped. The plugins found can be listed even after an error.
  Status scan();

  const std::vector<PluginFile>& files() const { return files_; }  // sorted by kind, then name
  const std::vector<SkippedFile>& skipped() const { return skipped_; }
  // Directories in order, each with a note: "12 plugins", "not there".
  struct Searched {
    std::string directory;
    std::string note;
  };
  const std::vector<Searched>& searched() const { return searched_; }

  // Null if there is no such plugin.
  const PluginFile* find(Kind kind, std::string_view name) const;

  // Loads (once) and returns the plugin. NOT_FOUND names the nearest known plugins and the searched
  // places.
  Result<std::shared_ptr<const Plugin>> load(Kind kind, std::string_view name);

 private:
  // Two scanned files with an equal id.
  struct Twin {
    std::string id, first, second;
  };
  const penstock_host* host_;
  RegistryOptions options_;
  std::vector<PluginFile> files_;
  std::vector<SkippedFile> skipped_;
  std::vector<Searched> searched_;
  std::vector<Twin> twins_;
  std::set<std::pair<uint64_t, uint64_t>> seen_;  // device and inode of files already read
  Mutex mutex_;                                   // sets may be created from several threads
  // By id.
  std::map<std::string, std::shared_ptr<const Plugin>> loaded_ PENSTOCK_GUARDED_BY(mutex_);

  void add_directory(const std::string& directory);
  void add_file(const std::string& path);
  // If two files have an equal id, keeps the file that may be loaded.
  void add(PluginFile file);
  Status unknown(Kind kind, std::string_view name) const;
};

// The directories to search: `plugin_path` of the TOML, PENSTOCK_PLUGIN_DIRECTORY (a
// colon-separated list) if set, then DIR/penstock/plugins and DIR/../lib/penstock/plugins, where
// DIR holds the library or program that contains this code.
std::vector<std::string> plugin_directories(
    const std::vector<std::string>& plugin_path,
    const GetEnvironment& environment = process_environment());

}  // namespace penstock
