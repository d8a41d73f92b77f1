// All ranks use one code path of kernels, and the host passes it to plugins.

#include "core/set/testing.hpp"

#include <array>

namespace penstock::code_path_test {
namespace {

using testing::scheme_text;
using testing::with_ranks;

std::string of_host(Runtime& runtime, std::string_view family) {
  const penstock_host* host = runtime.host();
  return std::string(view(host->code_path(host->context, str(family))));
}

TEST(CodePath, IsMeasuredOnRankZeroAndTheSameOnAll) {
  std::array<CodePaths, 4> paths;
  with_ranks(4, scheme_text("scheduler = \"fusion\""), [&](Runtime& runtime, uint32_t rank) {
    paths[rank] = runtime.code_paths();
    for (const auto& [family, path] : paths[rank]) EXPECT_EQ(of_host(runtime, family), path);
  });
  EXPECT_EQ(paths[0].count("select") + paths[0].count("low_rank") + paths[0].count(""), 3u);
  for (const CodePaths& other : paths) EXPECT_EQ(other, paths[0]);
}

TEST(CodePath, TheConfigurationForcesOneOnEveryFamily) {
  with_ranks(2, scheme_text("scheduler = \"fusion\"", "code_path = \"portable\"\n"),
             [](Runtime& runtime, uint32_t) {
               EXPECT_EQ(runtime.code_paths(), (CodePaths{{"", "portable"}}));
               EXPECT_EQ(of_host(runtime, "select"), "portable");
               const auto report = runtime.report();
               ASSERT_TRUE(report.ok());
               EXPECT_NE(report.value().find("\"code_paths\""), std::string::npos);
             });
}

}  // namespace
}  // namespace penstock::code_path_test
