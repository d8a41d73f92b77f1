// The log of a runtime. Every line carries level, rank and component; it goes to stderr unless a
// test captures it.
#pragma once

#include <penstock/host.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace penstock {

enum class LogLevel : uint32_t {
  debug = PENSTOCK_LOG_DEBUG,
  info = PENSTOCK_LOG_INFO,
  warning = PENSTOCK_LOG_WARNING,
  error = PENSTOCK_LOG_ERROR,
};

// LogLevel::warning for a name other than debug, info, warning, error.
LogLevel log_level_from_name(std::string_view name);

// All functions may be called from any thread.
class Log {
 public:
  // Receives every finished line without its newline; calls never overlap.
  using Sink = std::function<void(LogLevel, std::string_view line)>;

  explicit Log(LogLevel level = LogLevel::warning);  // to stderr
  Log(LogLevel level, Sink sink);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void set_level(LogLevel level);
  bool shows(LogLevel level) const;
  // Lines begin with "[rank/world] " from now on.
  void set_rank(uint32_t rank, uint32_t world);
  void write(LogLevel level, std::string_view component, std::string_view message);
  // Like write(), but skips a message that was written before; for messages that many sets would
  // repeat.
  void write_once(LogLevel level, std::string_view component, std::string_view message);

 private:
  struct Backend;
  std::unique_ptr<Backend> backend_;
};

}  // namespace penstock
