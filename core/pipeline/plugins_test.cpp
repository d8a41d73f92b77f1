// Compressors that the tests build for one promise of the runtime to plugins.

#include "core/pipeline/testing.hpp"

#include <filesystem>

namespace penstock {
namespace {

using testing::make_set;
using testing::scheme_text;
using testing::with_ranks;

// A scheme of the test plugin in `folder`, whose compressor is identity-c, in one bucket.
std::string scheme_of(const std::string& folder, const std::string& tables = "") {
  const std::string program = std::filesystem::canonical("/proc/self/exe").parent_path().string();
  return scheme_text(
      "compressor = \"identity-c\"\nmemory = \"none\"\nscheduler = \"fusion\"",
      fmt::format("allow_insecure_paths = true\nplugin_path = [\"{}/plugins/{}\"]\n{}", program,
                  folder, tables));
}

// The plugin refuses a call with less than it asked for all items of the call together.
TEST(Plugins, HaveScratchForAllItemsOfACallWhateverMemoriesTheseHave) {
  const std::string rule = "[[rule]]\nmatch = { name = \"b\" }\nmemory = \"residual\"\n";
  with_ranks(2, scheme_of("scratch", rule), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, {{"a", {3000}}, {"b", {2000}}, {"c", {1000}}});
    ASSERT_OK(set.status());
    std::vector<std::vector<float>> gradients;
    for (const size_t numel : {3000, 2000, 1000}) gradients.emplace_back(numel, float(2 * rank));
    ASSERT_OK(testing::run_step(*set.value(), gradients));
    for (const auto& values : gradients)
      for (const float value : values) ASSERT_EQ(value, 1);
  });
}

}  // namespace
}  // namespace penstock
