// See words.hpp.
#include "words.hpp"

#include <penstock/error.hpp>

#include <ucs/debug/log_def.h>

#include <cstdarg>
#include <cstdio>
#include <mutex>

namespace penstock::ucx {

namespace {

// UCX has one stack of listeners for the process.
std::mutex mutex;
int n_listening = 0;

// Errors are warnings here: the call that they belong to returns one of its own. UCX warns of what
// an abort or a rank that is gone leaves behind. More than that is written where UCX_LOG_LEVEL asks
// for it.
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
