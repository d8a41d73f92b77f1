// The built compressors, as parameters of a test. The target of a test with this header depends on
// all plugins (CMake).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <testing/gtest.hpp>
#include <vector>

namespace penstock::test {

// Files of the plugin folder (PENSTOCK_PLUGIN_DIRECTORY) of one kind, sorted by name.
inline std::vector<std::filesystem::path> plugin_files(const std::string& kind) {
  const char* const folder = std::getenv("PENSTOCK_PLUGIN_DIRECTORY");
  std::vector<std::filesystem::path> found;
  if (folder == nullptr || !std::filesystem::is_directory(folder)) return found;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().starts_with(kind + "-")) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

inline std::vector<std::filesystem::path> compressor_files() {
  return plugin_files("compressor");
}

// "powersgd" of ".../compressor-powersgd.so".
inline std::string plugin_name(const std::filesystem::path& file) {
  const std::string stem = file.stem().string();
  return stem.substr(stem.find('-') + 1);
}

// In the form that gtest allows in the name of a test.
inline std::string parameter_name(const ::testing::TestParamInfo<std::filesystem::path>& info) {
  std::string name = plugin_name(info.param);
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

// The plugin's options with which it also compresses small gradients.
inline OptionSettings small_gradient_options(const LoadedPlugin& plugin) {
  const OptionSettings wanted{{"density", 0.1},
                              {"rank", 2},
                              {"minimum_compression_rate", 0.0},
                              {"chunk", 5},
                              {"columns_per_entry", 1.0}};
  OptionSettings taken;
  for (uint64_t o = 0; o < plugin.module->n_options; ++o)
    for (const auto& setting : wanted) {
      const penstock_str name = plugin.module->options[o]->name;
      if (setting.first == std::string(name.data, name.size)) taken.push_back(setting);
    }
  return taken;
}

// The traits of the compressor with default options.
inline penstock_compressor_traits traits_of(const LoadedPlugin& plugin) {
  penstock_compressor_traits traits{};
  traits.struct_size = sizeof traits;
  const CompressorInstance instance(plugin.compressor(), *plugin.module);
  PENSTOCK_EXPECT_OK(instance.table().describe(instance.self(), &traits));
  return traits;
}

}  // namespace penstock::test

// Runs the parameterized tests of Suite for each compressor. If there is no compressor, a test
// fails and says why.
#define PENSTOCK_TEST_EVERY_COMPRESSOR(Suite)                                         \
  INSTANTIATE_TEST_SUITE_P(EveryCompressor, Suite,                                    \
                           ::testing::ValuesIn(::penstock::test::compressor_files()), \
                           ::penstock::test::parameter_name);                         \
  GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Suite);                               \
  TEST(Suite##Folder, HasCompressors) {                                               \
    EXPECT_GE(::penstock::test::compressor_files().size(), 8u)                        \
        << "PENSTOCK_PLUGIN_DIRECTORY names a folder without plugins";                \
  }                                                                                   \
  static_assert(true, "takes a semicolon")
