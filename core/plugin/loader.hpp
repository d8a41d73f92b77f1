// Loads a plugin's code and takes its module. The only place that calls into Boost.DLL.
//
// A file once loaded stays mapped until the process ends, one handle per file, however many
// runtimes use it: unloading code that may own threads, thread-local destructors or registered
// kernels cannot be made safe.
#pragma once

#include "core/plugin/record.hpp"

#include <memory>
#include <string>

namespace penstock {

// A loaded plugin of one runtime. The record is a copy; table and options are the plugin's static
// data.
struct Plugin {
  Record record;
  std::string path;        // absolute, real
  uint64_t file_hash = 0;  // hash64 of the file's bytes
  const void* table = nullptr;
  const penstock_option* const* options = nullptr;
  uint64_t n_options = 0;

  // The table as its own type; the kind has been checked by the loader. Null for another kind.
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

// [control] Checks trust, reads and checks the record, and only then lets code run: loads the file,
// calls load(host), checks module, options and the table's mandatory members. The message of an
// error begins with the path. NOT_FOUND where a library that it needs is not on this machine.
Result<std::shared_ptr<const Plugin>> load_plugin(const LoadRequest& request);

// Record and hash of a file, without loading it. What was found is remembered for as long as the
// file's size and times stay the same.
struct InspectedFile {
  Record record;
  uint64_t file_hash = 0;
};
Result<InspectedFile> inspect_plugin(const std::string& path);

}  // namespace penstock
