#include "core/plugin/loader.hpp"

#include "core/base/hash.hpp"
#include "core/base/mutex.hpp"
#include "core/plugin/elf.hpp"
#include "core/plugin/module.hpp"
#include "core/plugin/trust.hpp"

// shared_library.hpp of Boost 1.74 needs these headers but does not include them when it builds on
// std::filesystem.
#include <fstream>
#include <memory>
#include <vector>

#ifndef BOOST_DLL_USE_STD_FS
#define BOOST_DLL_USE_STD_FS
#endif
#include <boost/dll/shared_library.hpp>

#include <dlfcn.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

namespace penstock {

namespace {

constexpr const char* kSymbol = "penstock_plugin";

struct InspectedBytes {
  InspectedFile file;
  std::string record;  // the bytes in the file
};

Result<InspectedBytes> inspect_bytes(const std::string& path) {
  PENSTOCK_ASSIGN(const std::string file, read_plugin_file(path));
  const Result<std::string_view> bytes = symbol_bytes(file, kSymbol);
  if (!bytes.ok() && bytes.status().code() == Code::not_found) {
    return invalid_argument("{}: not a plugin: it does not export {}", path, kSymbol);
  }
  if (!bytes.ok()) return bytes.status().with_context(path);
  Result<Record> record = parse_record(bytes.value());
  if (!record.ok()) return record.status().with_context(path);
  return InspectedBytes{{std::move(record.value()), hash64(file)},
                        std::string(bytes.value().substr(0, sizeof(penstock_plugin_record)))};
}

// Shows whether a file may have been written since: its identity, length and times of change.
using FileState = std::tuple<dev_t, ino_t, off_t, time_t, long, time_t, long>;

std::optional<FileState> state_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  return FileState{info.st_dev,         info.st_ino,          info.st_size,
                   info.st_mtim.tv_sec, info.st_mtim.tv_nsec, info.st_ctim.tv_sec,
                   info.st_ctim.tv_nsec};
}

// Results of earlier inspections, so that several runtimes of a process read a folder of plugins
// once. Only listings use them. Before a file is loaded it is read again and must equal the listed
// file.
struct Inspections {
  Mutex mutex;
  std::map<FileState, InspectedFile> files PENSTOCK_GUARDED_BY(mutex);
};
Inspections& inspections() {
  static Inspections& known = *new Inspections;
  return known;
}

// The library that the dynamic loader did not find. The message begins with the bare name of a
// missing library, but with the path of a file that exists. The rest of the message may be in any
// language.
std::string_view missing_library(std::string_view reason) {
  const std::string_view subject = reason.substr(0, reason.find(':'));
  const bool is_bare = subject.find('/') == std::string_view::npos;
  return is_bare && subject.find(".so") != std::string_view::npos ? subject : std::string_view();
}

// The package with a library that plugins link to.
std::string_view provider(std::string_view library) {
  constexpr std::pair<std::string_view, std::string_view> kProviders[] = {
      {"libmpi.so", "Open MPI 4 (Debian: apt-get install libopenmpi3)"},
      {"libuc", "UCX (Debian: apt-get install libucx0; for Python pip install libucx-cu12)"},
      {"libnccl.so", "NCCL (pip install nvidia-nccl-cu12)"},
      {"libcuda.so", "the driver of the NVIDIA device"},
      {"libcudart.so", "the CUDA toolkit"}};
  for (const auto& [begin, what] : kProviders)
    if (library.starts_with(begin)) return what;
  return "what has it";
}

Status refused(const std::string& path, std::string_view reason) {
  const std::string_view library = missing_library(reason);
  if (library.empty())
    return invalid_argument("{}: the dynamic loader refuses it: {}", path, reason);
  return not_found(
      "{}: needs {}, which is not on this machine; install {}, or name its folder in "
      "LD_LIBRARY_PATH",
      path, library, provider(library));
}

// Opens the file, or returns the open handle. The caller holds loading(). Map and handles live as
// long as the process, because they belong to the global state of the dynamic loader, which all
// runtimes of a process share.
Result<const boost::dll::shared_library*> open_for_ever(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return not_found("{}: cannot be examined", path);
  using Handles = std::map<std::pair<dev_t, ino_t>, std::unique_ptr<boost::dll::shared_library>>;
  static Handles& handles = *new Handles;

  auto library = std::make_unique<boost::dll::shared_library>();
  boost::dll::fs::error_code error;
  library->load(path, error, boost::dll::load_mode::rtld_now | boost::dll::load_mode::rtld_local);
  if (error) {
    const char* reason = ::dlerror();
    return refused(path, reason != nullptr ? reason : "no reason given");
  }
  // If the library was open already, `library` only increased the loader's count and is closed
  // here.
  return handles.try_emplace({info.st_dev, info.st_ino}, std::move(library)).first->second.get();
}

// Only one plugin at a time is loaded in the process, so a constructor sees the writes of
// constructors in other threads. Recursive, because a constructor may load another plugin.
std::recursive_mutex& loading() {
  static std::recursive_mutex& mutex = *new std::recursive_mutex;
  return mutex;
}

// The loaded record must equal the record from the file. Otherwise another file was mapped than the
// file that was checked.
Status check_same_record(const penstock_plugin_record& loaded, const std::string& read,
                         const std::string& path) {
  constexpr size_t kConstant = offsetof(penstock_plugin_record, load);
  if (std::memcmp(&loaded, read.data(), kConstant) != 0) {
    return failed_precondition(
        "{}: the file changed while or after it was loaded; restart the process", path);
  }
  if (loaded.load == nullptr) return invalid_argument("{}: its record has no load function", path);
  return {};
}

}  // namespace

Result<InspectedFile> inspect_plugin(const std::string& path) {
  const std::optional<FileState> state = state_of(path);
  Inspections& known = inspections();
  if (state.has_value()) {
    const Lock lock(known.mutex);
    const auto found = known.files.find(*state);
    if (found != known.files.end()) return found->second;
  }
  PENSTOCK_ASSIGN(InspectedBytes inspected, inspect_bytes(path));
  if (state.has_value()) {
    const Lock lock(known.mutex);
    known.files.insert_or_assign(*state, inspected.file);
  }
  return std::move(inspected.file);
}

Result<std::shared_ptr<const Plugin>> load_plugin(const LoadRequest& request) {
  PENSTOCK_ASSIGN(const std::string path, real_path(request.path));
  PENSTOCK_TRY(check_trust(path, request.allow_insecure));
  PENSTOCK_ASSIGN(InspectedBytes inspected, inspect_bytes(path));
  PENSTOCK_TRY(check_abi(inspected.file.record).with_context(path));
  // From here on, code of the plugin runs.
  const std::lock_guard lock(loading());
  PENSTOCK_ASSIGN(const boost::dll::shared_library* library, open_for_ever(path));
  boost::dll::fs::error_code error;
  const auto* record =
      static_cast<const penstock_plugin_record*>(::dlsym(library->native(), kSymbol));
  if (record == nullptr)
    return invalid_argument("{}: the dynamic loader does not find {}", path, kSymbol);
  PENSTOCK_TRY(check_same_record(*record, inspected.record, path));
  const penstock_module* module = nullptr;
  PENSTOCK_TRY(from_c(record->load(request.host, &module)).with_context(path + ": load"));
  PENSTOCK_TRY(check_module(inspected.file.record.kind, module).with_context(path));
  auto plugin = std::make_shared<Plugin>();
  plugin->record = std::move(inspected.file.record);
  plugin->path = path;
  plugin->file_hash = inspected.file.file_hash;
  plugin->table = module->table;
  plugin->options = module->options;
  plugin->n_options = module->n_options;
  return std::shared_ptr<const Plugin>(std::move(plugin));
}

namespace {
template <typename Table>
const Table* table_of(const Plugin& plugin, Kind kind) {
  return plugin.record.kind == kind ? static_cast<const Table*>(plugin.table) : nullptr;
}
}  // namespace

template <>
const penstock_compressor* Plugin::as<penstock_compressor>() const {
  return table_of<penstock_compressor>(*this, Kind::compressor);
}
template <>
const penstock_memory* Plugin::as<penstock_memory>() const {
  return table_of<penstock_memory>(*this, Kind::memory);
}
template <>
const penstock_collective* Plugin::as<penstock_collective>() const {
  return table_of<penstock_collective>(*this, Kind::collective);
}
template <>
const penstock_scheduler* Plugin::as<penstock_scheduler>() const {
  return table_of<penstock_scheduler>(*this, Kind::scheduler);
}

}  // namespace penstock
