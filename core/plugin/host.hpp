// The penstock_host table of a runtime: the services that plugins may use.
#pragma once

#include "core/base/status.hpp"
#include "core/trace/log.hpp"

#include <penstock/host.h>

#include <string_view>

namespace penstock {

// `log` must outlive it. The table itself is never freed: a plugin file is never unmapped and keeps
// the table of the runtime that loaded it last, also for its instances in another runtime. After
// the end of its host, a table still makes and reads statuses, but it logs nothing and its workers
// have no threads.
class Host {
 public:
  explicit Host(Log& log);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  const penstock_host* table() const;

  // The code path that the ranks agreed on for a kernel family; the family "" stands for every
  // family without a path of its own. [any] Set before plugins plan; a later value replaces it for
  // plugins that ask again.
  void set_code_path(std::string_view family, std::string_view path);
  // The number of threads that share the work of a call (penstock/workers.h); 1 before this call.
  // [control] Must not be called while plugins work.
  void set_worker_threads(uint32_t count);
  // Adds a service, which plugins find by its id "penstock.<name>/<revision>"; `table` must outlive
  // the host. [any]
  void set_extension(std::string_view id, const void* table);

 private:
  struct Services;  // the table, its functions and their data
  Services& services_;
};

}  // namespace penstock
