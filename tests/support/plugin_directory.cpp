// Linked into every test program. If PENSTOCK_PLUGIN_DIRECTORY is not set, it becomes the plugin
// folder of the program's own build. So a test can be started by hand as well as by ctest.
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
