// Needs that a plugin must not publish give an error before the first step, and never a crash, a
// hang or a wrong buffer.

#include "core/set/testing.hpp"

#include <filesystem>
#include <fstream>
#include <map>

namespace penstock::hostile_needs_test {
namespace {

struct Hostile {
  std::string name, source, expected;
};

std::string test_plugins() {
  return (std::filesystem::canonical("/proc/self/exe").parent_path() / "plugins").string();
}

// The lines of tests/plugins/hostile_needs.txt.
std::vector<Hostile> hostile_needs() {
  std::ifstream file(test_plugins() + "/hostile_needs.txt");
  std::vector<Hostile> all;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::vector<std::string> parts;
    for (size_t at = 0, end = 0; end != std::string::npos; at = end + 3) {
      end = line.find(" | ", at);
      parts.push_back(line.substr(at, end - at));
    }
    if (parts.size() == 4) all.push_back({parts[0], parts[1], parts[3]});
  }
  return all;
}

class HostileNeeds : public ::testing::TestWithParam<Hostile> {};

// The begin of the error message, by the source of the plugin.
const std::map<std::string, std::pair<std::string, std::string>> kSources = {
    {"identity",
     {"compressor = \"identity-c\"\nmemory = \"none\"\nscheduler = \"fusion\"",
      "set 'model': compressor 'identity-c' (compressor/identity-c): plan for gradient "
      "'layer.weight' in phase 0: "}},
    {"keep",
     {"compressor = \"none\"\nmemory = \"keep-c\"\nscheduler = \"fusion\"",
      "set 'model': memory 'keep-c' (memory/keep-c): plan for gradient 'layer.weight': "}},
    {"each",
     {"compressor = \"none\"\nmemory = \"none\"\nscheduler = \"each-c\"",
      "scheduler 'each-c': bucket 0 of its plan: "}}};

TEST_P(HostileNeeds, AreRefusedWithPluginGradientFieldValueAndExpectation) {
  const Hostile& hostile = GetParam();
  const auto& [keys, begin] = kSources.at(hostile.source);
  const std::string scheme = testing::scheme_text(
      keys, fmt::format("allow_insecure_paths = true\nplugin_path = [\"{}/hostile_{}\"]\n",
                        test_plugins(), hostile.name));
  testing::with_ranks(1, scheme, [&](Runtime& runtime, uint32_t) {
    const auto set = testing::make_set(runtime, {{"layer.weight", {3, 5}}});
    ASSERT_FALSE(set.ok());
    EXPECT_EQ(set.status().code(), Code::internal);
    const std::string message(set.status().message());
    EXPECT_EQ(message.substr(0, begin.size() + hostile.expected.size()), begin + hostile.expected);
    EXPECT_NE(message.find(hostile.name == "need_size" ? "must not" : ", expected "),
              std::string::npos)
        << message;
  });
}

INSTANTIATE_TEST_SUITE_P(Table, HostileNeeds, ::testing::ValuesIn(hostile_needs()),
                         [](const auto& info) { return info.param.name; });

TEST(HostileNeedsTable, IsThere) {
  EXPECT_GT(hostile_needs().size(), 30u);
}

}  // namespace
}  // namespace penstock::hostile_needs_test
