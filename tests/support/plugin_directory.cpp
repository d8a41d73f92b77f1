// Linked into every test program: where PENSTOCK_PLUGIN_DIRECTORY is not set, it is the folder of
// plugins of the build that the program lies in, so that a test can be started by hand as well as
// by ctest.
#include <cstdlib>
#include <filesystem>

namespace {

const bool set_before_main = [] {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto plugins = program.parent_path().parent_path() / "lib/penstock/plugins";
  if (!error) ::setenv("PENSTOCK_PLUGIN_DIRECTORY", plugins.c_str(), 0);
  return !error;
}();

}  // namespace
