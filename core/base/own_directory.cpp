#include "core/base/own_directory.hpp"

#include <dlfcn.h>

namespace penstock {

std::filesystem::path own_directory() {
  Dl_info info{};
  std::error_code error;
  std::filesystem::path self;
  if (::dladdr(reinterpret_cast<const void*>(&own_directory), &info) != 0 &&
      info.dli_fname != nullptr) {
    self = info.dli_fname;
  }
  // For the program itself the loader only knows argv[0], which may be a relative path.
  if (!self.is_absolute()) self = "/proc/self/exe";
  self = std::filesystem::canonical(self, error);
  return error ? std::filesystem::path() : self.parent_path();
}

}  // namespace penstock
