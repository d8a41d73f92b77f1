// A line of penstock doctor: its finding about one subject.
#pragma once

#include "tools/penstock/output.hpp"

#include <string>

namespace penstock::command {

// ok: the subject has been run or loaded. fact: nothing was tried.
enum class Health { ok, fact, warning, problem };

struct Line {
  std::string subject;
  Health health = Health::ok;
  std::string found;
  std::string fix;             // empty if nothing is wrong
  Json more = Json::object();  // for programs only
};

// Says on standard error what takes its time now, if somebody looks at a terminal.
void tell_progress(const std::string& what);

}  // namespace penstock::command
