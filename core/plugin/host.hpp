// The penstock_host table of a runtime: what plugins may ask of us.
#pragma once

#include "core/base/status.hpp"
#include "core/trace/log.hpp"

#include <penstock/host.h>

#include <deque>
#include <map>
#include <mutex>
#include <string>

namespace penstock {

// Must outlive every plugin instance made with its table. `log` must outlive it.
class Host {
 public:
  explicit Host(Log& log);
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  const penstock_host* table() const { return &table_; }

  // The code path that the ranks agreed on for a kernel family. [any] Set before plugins plan; a
  // later one replaces it for those who ask again.
  void set_code_path(std::string_view family, std::string_view path);
  // A further service, found by its id "penstock.<name>/<revision>"; `table` must outlive the host.
  // [any]
  void set_extension(std::string_view id, const void* table);

 private:
  struct Services;  // the C functions of the table
  Log& log_;
  penstock_host table_{};
  mutable std::mutex mutex_;
  std::map<std::string, const std::string*, std::less<>> code_paths_;
  std::deque<std::string> texts_;  // never shrinks: plugins hold on to what code_path gave
  std::map<std::string, const void*, std::less<>> extensions_;
};

}  // namespace penstock
