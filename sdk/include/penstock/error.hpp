// Errors and the host, for plugins written in C++. This code is compiled into the plugin; it is no
// part of the ABI.
//
// Plugin code throws Error. The trampolines of this SDK are noexcept and turn every exception into
// a status that the host makes, so that no exception crosses the boundary.
#pragma once

#include <penstock/host.h>
#include <penstock/workers.h>

#include <atomic>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace penstock::sdk {

// A failure. The message gives thing, value, expectation and remedy in one lower-case sentence.
class Error : public std::runtime_error {
 public:
  Error(uint32_t code, const std::string& message) : std::runtime_error(message), code_(code) {}
  uint32_t code() const { return code_; }

 private:
  uint32_t code_;
};

// Joins its arguments to one text, in the form in which a stream prints them.
template <typename... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream stream;
  (stream << ... << parts);
  return stream.str();
}

template <typename... Parts>
Error invalid_argument(const Parts&... parts) {
  return Error(PENSTOCK_INVALID_ARGUMENT, text(parts...));
}
template <typename... Parts>
Error invalid_payload(const Parts&... parts) {
  return Error(PENSTOCK_INVALID_PAYLOAD, text(parts...));
}
template <typename... Parts>
Error unimplemented(const Parts&... parts) {
  return Error(PENSTOCK_UNIMPLEMENTED, text(parts...));
}
template <typename... Parts>
Error device_error(const Parts&... parts) {
  return Error(PENSTOCK_DEVICE_ERROR, text(parts...));
}
template <typename... Parts>
Error internal(const Parts&... parts) {
  return Error(PENSTOCK_INTERNAL, text(parts...));
}

inline std::string_view view(penstock_str text) {
  return {text.data, text.size};
}
inline penstock_str str(std::string_view text) {
  return {text.data(), text.size()};
}

// The pointer to the host; each plugin file has its own. It is atomic because two runtimes of one
// process may load the file concurrently.
inline std::atomic<const penstock_host*>& host_slot() {
  static std::atomic<const penstock_host*> slot{nullptr};
  return slot;
}
// The host that loaded this plugin. load() sets it before any instance exists.
inline const penstock_host* host() {
  return host_slot().load(std::memory_order_acquire);
}

inline penstock_status* make_status(uint32_t code, std::string_view message) noexcept {
  return host()->status_new(host()->context, code, str(message));
}

// Takes ownership of a status from the host or another plugin, and throws its error. Null means
// success.
inline void check(penstock_status* status) {
  if (status == nullptr) return;
  const uint32_t code = host()->status_code(host()->context, status);
  const std::string message(view(host()->status_message(host()->context, status)));
  host()->status_free(host()->context, status);
  throw Error(code, message);
}

// Runs `body` and turns any exception into a status. Every function of a table that returns a
// status must use it.
template <typename Body>
penstock_status* guarded(Body&& body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const Error& error) {
    return make_status(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return make_status(PENSTOCK_OUT_OF_MEMORY, "out of memory in a plugin");
  } catch (const std::exception& error) {
    return make_status(PENSTOCK_INTERNAL, error.what());
  } catch (...) {
    return make_status(PENSTOCK_INTERNAL, "a plugin threw something that is no std::exception");
  }
}

// Writes a line to the run's log.
inline void log(uint32_t level, std::string_view component, std::string_view message) {
  host()->log(host()->context, level, str(component), str(message));
}

// The code path on which the ranks agreed for a family of kernels, or empty.
inline std::string_view code_path(std::string_view kernel_family) {
  if (host() == nullptr || host()->code_path == nullptr) return {};
  return view(host()->code_path(host()->context, str(kernel_family)));
}

// The host's threads that share the work of a call, or null.
inline const penstock_workers* workers() {
  if (host() == nullptr || host()->extension == nullptr) return nullptr;
  return static_cast<const penstock_workers*>(
      host()->extension(host()->context, str(PENSTOCK_WORKERS_EXTENSION)));
}

}  // namespace penstock::sdk
