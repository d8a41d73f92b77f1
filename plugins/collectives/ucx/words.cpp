// See words.hpp.
#include "words.hpp"

#include <penstock/error.hpp>

#include <ucs/debug/log_def.h>

#include <cstdarg>
#include <cstdio>
#include <mutex>

namespace penstock::ucx {

namespace {

// UCX has one stack of log handlers for the process.
std::mutex mutex;
int n_listening = 0;

// Logs errors of UCX as warnings, because the call that fails returns its own error. Logs warnings
// as debug messages, because UCX warns about the remains of an abort or of a dead rank. Less
// important messages are written if UCX_LOG_LEVEL asks for them.
ucs_log_func_rc_t listen(const char*, unsigned, const char*, ucs_log_level_t level,
                         const ucs_log_component_config_t*, const char* format, va_list values) {
  if (level > UCS_LOG_LEVEL_WARN) return UCS_LOG_FUNC_RC_CONTINUE;
  char text[1024] = "";
  va_list copy;
  va_copy(copy, values);
  std::vsnprintf(text, sizeof text, format, copy);
  va_end(copy);
  const uint32_t ours = level == UCS_LOG_LEVEL_WARN ? PENSTOCK_LOG_DEBUG : PENSTOCK_LOG_WARNING;
  sdk::log(ours, "collective/ucx", text);
  return UCS_LOG_FUNC_RC_STOP;
}

}  // namespace

Words::Words() {
  const std::lock_guard lock(mutex);
  if (n_listening++ == 0) ucs_log_push_handler(listen);
}

Words::~Words() {
  const std::lock_guard lock(mutex);
  if (--n_listening == 0) ucs_log_pop_handler();
}

}  // namespace penstock::ucx
