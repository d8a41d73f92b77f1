// The only file that includes spdlog.
#include "core/trace/log.hpp"

#include "core/base/mutex.hpp"
#include "core/base/printable.hpp"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <fmt/format.h>

#include <mutex>
#include <unordered_set>

namespace penstock {

namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
  }
  return spdlog::level::err;  // a plugin may pass any number
}

LogLevel from_spdlog(spdlog::level::level_enum level) {
  if (level <= spdlog::level::debug) return LogLevel::debug;
  if (level == spdlog::level::info) return LogLevel::info;
  return level == spdlog::level::warn ? LogLevel::warning : LogLevel::error;
}

class CallbackSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit CallbackSink(Log::Sink sink) : sink_(std::move(sink)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    sink_(from_spdlog(message.level), {line.data(), line.size()});
  }
  void flush_() override {}
  Log::Sink sink_;
};

}  // namespace

struct Log::Backend {
  explicit Backend(spdlog::sink_ptr sink) : logger("penstock", std::move(sink)) {
    // A full disk or a closed stderr must not stop a run, and must not print either.
    logger.set_error_handler([](const std::string&) {});
    logger.flush_on(spdlog::level::warn);
  }
  spdlog::logger logger;
  Mutex mutex;
  std::string prefix PENSTOCK_GUARDED_BY(mutex);
  std::unordered_set<std::string> written_once PENSTOCK_GUARDED_BY(mutex);
};

LogLevel log_level_from_name(std::string_view name) {
  if (name == "debug") return LogLevel::debug;
  if (name == "info") return LogLevel::info;
  if (name == "error") return LogLevel::error;
  return LogLevel::warning;
}

Log::Log(LogLevel level)
    : backend_(std::make_unique<Backend>(std::make_shared<spdlog::sinks::stderr_sink_mt>())) {
  backend_->logger.set_pattern("penstock %H:%M:%S.%e %l %v");
  set_level(level);
}

Log::Log(LogLevel level, Sink sink)
    : backend_(std::make_unique<Backend>(std::make_shared<CallbackSink>(std::move(sink)))) {
  // Without the time, because tests and reports capture the log, and their text must be stable.
  backend_->logger.set_formatter(std::make_unique<spdlog::pattern_formatter>(
      "%l %v", spdlog::pattern_time_type::local, std::string()));
  set_level(level);
}

Log::~Log() = default;

void Log::set_level(LogLevel level) {
  backend_->logger.set_level(to_spdlog(level));
}

bool Log::shows(LogLevel level) const {
  return backend_->logger.should_log(to_spdlog(level));
}

void Log::set_rank(uint32_t rank, uint32_t world) {
  const Lock lock(backend_->mutex);
  backend_->prefix = fmt::format("[{}/{}] ", rank, world);
}

void Log::write(LogLevel level, std::string_view component, std::string_view message) {
  if (!shows(level)) return;
  std::string prefix;
  {
    const Lock lock(backend_->mutex);
    prefix = backend_->prefix;
  }
  backend_->logger.log(to_spdlog(level), "{}{}: {}", prefix, printable(component),
                       printable(message));
}

void Log::write_once(LogLevel level, std::string_view component, std::string_view message) {
  {
    const Lock lock(backend_->mutex);
    if (!backend_->written_once.insert(fmt::format("{}: {}", component, message)).second) return;
  }
  write(level, component, message);
}

}  // namespace penstock
