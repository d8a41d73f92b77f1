#include "core/plugin/registry.hpp"

#include "core/base/nearest.hpp"
#include "core/base/own_directory.hpp"
#include "core/plugin/trust.hpp"

#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

namespace penstock {

namespace fs = std::filesystem;

Registry::Registry(const penstock_host* host, RegistryOptions options)
    : host_(host), options_(std::move(options)) {}

Status Registry::scan() {
  files_.clear();
  skipped_.clear();
  searched_.clear();
  twins_.clear();
  seen_.clear();
  for (const std::string& directory : options_.directories) add_directory(directory);
  std::sort(files_.begin(), files_.end(), [](const PluginFile& a, const PluginFile& b) {
    return std::tuple(a.record.kind, a.record.name, a.path) <
           std::tuple(b.record.kind, b.record.name, b.path);
  });
  if (twins_.empty()) return {};
  const Twin& twin = twins_.front();
  return Status(
      Code::mismatch,
      fmt::format(
          "two plugins have the id {}: {} and {}; remove one, or take its directory off the "
          "search path",
          twin.id, twin.first, twin.second));
}

void Registry::add_directory(const std::string& directory) {
  const auto note = [&](std::string text) { searched_.push_back({directory, std::move(text)}); };
  if (!fs::path(directory).is_absolute()) return note("not searched: not an absolute path");
  std::error_code error;
  std::vector<std::string> paths;
  // First list and sort, because the result must not depend on the order in which the file system
  // lists files.
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() == ".so") paths.push_back(at->path().string());
  }
  if (error == std::errc::no_such_file_or_directory) return note("not there");
  if (error) return note(fmt::format("not searched: {}", error.message()));
  std::sort(paths.begin(), paths.end());
  const size_t before = files_.size();
  for (const std::string& path : paths) add_file(path);
  const size_t n_new = files_.size() - before;
  note(n_new == 1 ? "1 plugin" : fmt::format("{} plugins", n_new));
}

void Registry::add_file(const std::string& path) {
  const Result<std::string> real = real_path(path);
  struct stat info {};
  if (!real.ok() || ::stat(real.value().c_str(), &info) != 0) {
    skipped_.push_back(
        {path, real.ok() ? "cannot be examined" : std::string(real.status().message()), ""});
    return;
  }
  // One file may be found twice, by a link or by a directory that is named twice.
  if (!seen_.insert({info.st_dev, info.st_ino}).second) return;
  Result<InspectedFile> inspected = inspect_plugin(real.value());
  if (!inspected.ok()) {
    skipped_.push_back({real.value(), std::string(inspected.status().message()), ""});
    return;
  }
  Record& record = inspected->record;
  Status usable = check_abi(record).with_context(real.value());
  if (record.id.empty()) {
    skipped_.push_back({real.value(), std::string(usable.message()), ""});
    return;
  }
  if (usable.ok()) usable = check_trust(real.value(), options_.allow_insecure);
  add({real.value(), std::move(record), inspected->file_hash, std::move(usable)});
}

void Registry::add(PluginFile file) {
  const auto other = std::find_if(files_.begin(), files_.end(), [&](const PluginFile& one) {
    return one.record.id == file.record.id;
  });
  if (other == files_.end()) {
    files_.push_back(std::move(file));
    return;
  }
  if (file.usable.ok() && other->usable.ok()) {
    twins_.push_back({file.record.id, other->path, file.path});
    files_.push_back(std::move(file));
    return;
  }
  if (file.usable.ok()) std::swap(file, *other);
  skipped_.push_back({file.path, std::string(file.usable.message()), other->path});
}

const PluginFile* Registry::find(Kind kind, std::string_view name) const {
  for (const PluginFile& file : files_)
    if (file.record.kind == kind && file.record.name == name) return &file;
  return nullptr;
}

Status Registry::unknown(Kind kind, std::string_view name) const {
  std::vector<std::string> names;
  std::string elsewhere;
  for (const PluginFile& file : files_) {
    if (file.record.kind == kind) names.push_back(file.record.name);
    if (file.record.name == name) {
      elsewhere = fmt::format("; \"{}\" is a {}", name, kind_name(file.record.kind));
    }
  }
  std::vector<std::string> places;
  for (const Searched& searched : searched_) {
    places.push_back(fmt::format("{} ({})", searched.directory, searched.note));
  }
  // An unreadable file may be the plugin that was asked for.
  std::string unread;
  for (const SkippedFile& file : skipped_) {
    if (file.path.find(name) != std::string::npos)
      unread += fmt::format("; skipped {}", file.reason);
  }
  return not_found("there is no {} plugin \"{}\"{}{}{}{}; looked in {}", kind_name(kind), name,
                   did_you_mean(name, names), elsewhere, unread,
                   kind == Kind::collective
                       ? "; a build contains a plugin only if it found the library for it, and "
                         "only builds with CUDA contain plugins that carry memory of devices "
                         "(docs/guide/gpu.md)"
                       : "",
                   places.empty() ? "no directory: set runtime.plugin_path"
                                  : fmt::format("{}", fmt::join(places, ", ")));
}

Result<std::shared_ptr<const Plugin>> Registry::load(Kind kind, std::string_view name) {
  const PluginFile* file = find(kind, name);
  if (file == nullptr) return unknown(kind, name);
  PENSTOCK_TRY(file->usable);
  {
    const Lock lock(mutex_);
    const auto loaded = loaded_.find(file->record.id);
    if (loaded != loaded_.end()) return loaded->second;
  }
  // Without the lock, because code of the plugin runs. A second load is harmless, because load() is
  // idempotent.
  PENSTOCK_ASSIGN(std::shared_ptr<const Plugin> plugin,
                  load_plugin({file->path, host_, options_.allow_insecure}));
  if (plugin->file_hash != file->file_hash) {
    return failed_precondition("{}: the file changed since it was found; restart the run",
                               file->path);
  }
  const Lock lock(mutex_);
  return loaded_.try_emplace(file->record.id, std::move(plugin)).first->second;
}

std::vector<std::string> plugin_directories(const std::vector<std::string>& plugin_path,
                                            const GetEnvironment& environment) {
  std::vector<std::string> directories = plugin_path;
  const char* listed = environment ? environment("PENSTOCK_PLUGIN_DIRECTORY") : nullptr;
  std::string_view rest = listed != nullptr ? listed : "";
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(':'), rest.size());
    if (end > 0) directories.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (const fs::path own = own_directory(); !own.empty()) {
    directories.push_back((own / "penstock/plugins").string());
    directories.push_back((own.parent_path() / "lib/penstock/plugins").string());
  }
  std::vector<std::string> unique;
  for (const std::string& directory : directories) {
    const std::string normal = fs::path(directory).lexically_normal().string();
    if (std::find(unique.begin(), unique.end(), normal) == unique.end()) unique.push_back(normal);
  }
  return unique;
}

}  // namespace penstock
