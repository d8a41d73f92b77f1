#include "core/base/environment.hpp"

#include <cstdlib>

namespace penstock {

GetEnvironment process_environment() {
  return [](const char* name) -> const char* { return std::getenv(name); };
}

}  // namespace penstock
