// Helpers for the tests of this room: the plugins that tests/plugins builds, and private folders
// for their copies.
#pragma once

#include "core/plugin/host.hpp"
#include "core/plugin/registry.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace penstock::test {

// The folder of this test program holds plugins/NAME/plugin.so.
inline std::string plugin_file(const std::string& name) {
  const auto program = std::filesystem::canonical("/proc/self/exe").parent_path();
  return (program / "plugins" / name / "plugin.so").string();
}

// A folder that only this user can change; removed with the object.
class PrivateFolder {
 public:
  PrivateFolder() {
    std::string pattern = ::testing::TempDir() + "penstock_plugin_XXXXXX";
    const char* made = ::mkdtemp(pattern.data());
    EXPECT_NE(made, nullptr);
    path_ = std::filesystem::canonical(pattern).string();
  }
  ~PrivateFolder() { std::filesystem::remove_all(path_); }
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  const std::string& path() const { return path_; }
  // Copies the test plugin `plugin` to FOLDER/NAME and returns that path. The loader treats a copy
  // as a different file.
  std::string add(const std::string& plugin, const std::string& name) const {
    const std::string to = path_ + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(to).parent_path());
    std::filesystem::copy_file(plugin_file(plugin), to,
                               std::filesystem::copy_options::overwrite_existing);
    return to;
  }

 private:
  std::string path_;
};

// A host that keeps its log lines.
struct TestHost {
  std::vector<std::string> lines;
  Log log{LogLevel::debug, [this](LogLevel, std::string_view line) { lines.emplace_back(line); }};
  Host host{log};
};

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace penstock::test
