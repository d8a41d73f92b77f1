#include "core/plugin/host.hpp"

#include "core/base/mutex.hpp"
#include "core/base/workers.hpp"

#include <deque>
#include <map>
#include <memory>
#include <string>

namespace penstock {

// Plugins may call these functions from any thread, and must never see an exception.
struct Host::Services {
  penstock_host table{};
  Mutex mutex;
  Log* log PENSTOCK_GUARDED_BY(mutex) = nullptr;  // null after the end of the host
  std::map<std::string, const std::string*, std::less<>> code_paths PENSTOCK_GUARDED_BY(mutex);
  // Never shrinks, because plugins keep the texts from code_path.
  std::deque<std::string> texts PENSTOCK_GUARDED_BY(mutex);
  std::map<std::string, const void*, std::less<>> extensions PENSTOCK_GUARDED_BY(mutex);
  Workers workers;

  static Services& of(void* context) { return *static_cast<Services*>(context); }

  static penstock_status* status_new(void*, uint32_t code, penstock_str message) noexcept {
    // The result must be an error, because null would mean success.
    const bool is_error = code > PENSTOCK_OK && code <= PENSTOCK_INTERNAL;
    return to_c(
        Status(is_error ? static_cast<Code>(code) : Code::internal, std::string(view(message))));
  }
  static uint32_t status_code(void*, const penstock_status* status) noexcept {
    return static_cast<uint32_t>(peek(status).code());
  }
  static penstock_str status_message(void*, const penstock_status* status) noexcept {
    return str(peek(status).message());
  }
  static void status_free(void*, penstock_status* status) noexcept { (void)from_c(status); }

  static void write_log(void* context, uint32_t level, penstock_str component,
                        penstock_str message) noexcept {
    Services& self = of(context);
    const uint32_t known = level <= PENSTOCK_LOG_ERROR ? level : uint32_t{PENSTOCK_LOG_ERROR};
    const Lock lock(self.mutex);
    if (self.log != nullptr)
      self.log->write(static_cast<LogLevel>(known), view(component), view(message));
  }
  static penstock_str code_path(void* context, penstock_str family) noexcept {
    Services& self = of(context);
    const Lock lock(self.mutex);
    auto found = self.code_paths.find(view(family));
    if (found == self.code_paths.end()) found = self.code_paths.find(std::string_view());
    return found == self.code_paths.end() ? penstock_str{nullptr, 0} : str(*found->second);
  }
  static const void* extension(void* context, penstock_str id) noexcept {
    Services& self = of(context);
    if (view(id) == PENSTOCK_WORKERS_EXTENSION) return self.workers.table();
    const Lock lock(self.mutex);
    const auto found = self.extensions.find(view(id));
    return found == self.extensions.end() ? nullptr : found->second;
  }

  explicit Services(Log& to) : log(&to) {
    table.struct_size = sizeof table;
    table.context = this;
    table.abi_major = PENSTOCK_ABI_MAJOR;
    table.abi_minor = PENSTOCK_ABI_MINOR;
    table.version = str(PENSTOCK_VERSION);
    table.status_new = status_new;
    table.status_code = status_code;
    table.status_message = status_message;
    table.status_free = status_free;
    table.log = write_log;
    table.code_path = code_path;
    table.extension = extension;
  }

  // Kept until the process ends, after static objects too, because no destructor runs.
  static Services& make_for_ever(Log& log) {
    static Mutex& all_mutex = *new Mutex;
    static auto& all = *new std::deque<std::unique_ptr<Services>>;
    const Lock lock(all_mutex);
    return *all.emplace_back(std::make_unique<Services>(log));
  }
};

Host::Host(Log& log) : services_(Services::make_for_ever(log)) {}

Host::~Host() {
  services_.workers.stop();
  const Lock lock(services_.mutex);
  services_.log = nullptr;
  services_.extensions.clear();
}

const penstock_host* Host::table() const {
  return &services_.table;
}

void Host::set_code_path(std::string_view family, std::string_view path) {
  const Lock lock(services_.mutex);
  services_.texts.emplace_back(path);
  services_.code_paths.insert_or_assign(std::string(family), &services_.texts.back());
}

void Host::set_worker_threads(uint32_t count) {
  services_.workers.resize(count);
}

void Host::set_extension(std::string_view id, const void* table) {
  const Lock lock(services_.mutex);
  services_.extensions.insert_or_assign(std::string(id), table);
}

}  // namespace penstock
