#include "core/plugin/host.hpp"

namespace penstock {

// Plugins may call these from any thread and must never see an exception.
struct Host::Services {
  static Host& of(void* context) { return *static_cast<Host*>(context); }

  static penstock_status* status_new(void*, uint32_t code, penstock_str message) noexcept {
    // A status stands for an error: null would say that all is well.
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

  static void log(void* context, uint32_t level, penstock_str component,
                  penstock_str message) noexcept {
    const uint32_t known = level <= PENSTOCK_LOG_ERROR ? level : uint32_t{PENSTOCK_LOG_ERROR};
    of(context).log_.write(static_cast<LogLevel>(known), view(component), view(message));
  }
  static penstock_str code_path(void* context, penstock_str family) noexcept {
    Host& host = of(context);
    const std::lock_guard lock(host.mutex_);
    const auto found = host.code_paths_.find(view(family));
    return found == host.code_paths_.end() ? penstock_str{nullptr, 0} : str(*found->second);
  }
  static const void* extension(void* context, penstock_str id) noexcept {
    Host& host = of(context);
    const std::lock_guard lock(host.mutex_);
    const auto found = host.extensions_.find(view(id));
    return found == host.extensions_.end() ? nullptr : found->second;
  }
};

Host::Host(Log& log) : log_(log) {
  table_.struct_size = sizeof table_;
  table_.context = this;
  table_.abi_major = PENSTOCK_ABI_MAJOR;
  table_.abi_minor = PENSTOCK_ABI_MINOR;
  table_.version = str(PENSTOCK_VERSION);
  table_.status_new = Services::status_new;
  table_.status_code = Services::status_code;
  table_.status_message = Services::status_message;
  table_.status_free = Services::status_free;
  table_.log = Services::log;
  table_.code_path = Services::code_path;
  table_.extension = Services::extension;
}

void Host::set_code_path(std::string_view family, std::string_view path) {
  const std::lock_guard lock(mutex_);
  texts_.emplace_back(path);
  code_paths_.insert_or_assign(std::string(family), &texts_.back());
}

void Host::set_extension(std::string_view id, const void* table) {
  const std::lock_guard lock(mutex_);
  extensions_.insert_or_assign(std::string(id), table);
}

}  // namespace penstock
