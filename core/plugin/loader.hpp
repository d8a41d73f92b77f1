// Loads a plugin's code and takes its module. Only this file calls Boost.DLL.
//
// A loaded file stays mapped until the process ends, with one handle per file for all runtimes,
// because code with threads, thread-local destructors or registered kernels cannot be unloaded
// safely.
#pragma once

#include "core/plugin/record.hpp"

#include <memory>
#include <string>

namespace penstock {

// A loaded plugin of one runtime. The record is a copy; table and options are static data of the
// plugin.
struct Plugin {
  Record record;
  std::string path;        // absolute, real
  uint64_t file_hash = 0;  // hash64 of the file's bytes
  const void* table = nullptr;
  const penstock_option* const* options = nullptr;
  uint64_t n_options = 0;

  // The table as its own type; the loader has checked the kind. Null for another kind.
  template <typename Table>
  const Table* as() const;
};

template <>
const penstock_compressor* Plugin::as<penstock_compressor>() const;
template <>
const penstock_memory* Plugin::as<penstock_memory>() const;
template <>
const penstock_collective* Plugin::as<penstock_collective>() const;
template <>
const penstock_scheduler* Plugin::as<penstock_scheduler>() const;

struct LoadRequest {
  std::string path;  // any absolute path; symbolic links are followed
  const penstock_host* host = nullptr;
  bool allow_insecure = false;
};

// [control] Checks trust, reads and checks the record, and only then runs code of the file: loads
// it, calls load(host), checks module, options and the table's mandatory members. The message of an
// error begins with the path. NOT_FOUND if a library that the plugin needs is not on this machine.
Result<std::shared_ptr<const Plugin>> load_plugin(const LoadRequest& request);

// Record and hash of a file, read without loading it. The result is cached until the file's size or
// times change.
struct InspectedFile {
  Record record;
  uint64_t file_hash = 0;
};
Result<InspectedFile> inspect_plugin(const std::string& path);

}  // namespace penstock
