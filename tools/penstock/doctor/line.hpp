// What penstock doctor says of one thing.
#pragma once

#include "tools/penstock/output.hpp"

#include <string>

namespace penstock::command {

// ok: it has run, or been loaded. fact: nothing was tried.
enum class Health { ok, fact, warning, problem };

struct Line {
  std::string subject;
  Health health = Health::ok;
  std::string found;
  std::string fix;             // empty where nothing is wrong
  Json more = Json::object();  // for programs only
};

}  // namespace penstock::command
