// Forgotten steps, with every scheme. A run with some forgotten steps continues exactly like a run
// without them, in its results and in its saved states.

#include "core/set/forget_testing.hpp"

#include <support/long.hpp>
#include <support/sanitized.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace penstock::forget_test {
namespace {

using namespace forgetting;

NamedScheme oktopk() {
  NamedScheme made = scheme("oktopk", keys("topk", "residual", "transport = \"loopback\""),
                            "[compressor.topk]\ndensity = 0.05\n"
                            "[collective.oktopk]\nthreshold_period = 2\nboundary_period = 4\n");
  made.text.replace(made.text.find("\"loopback\""), 10, "\"oktopk\"");
  return made;
}

const std::string kRank = "rank = 2\nminimum_compression_rate = 0.0\n";

const NamedScheme kSchemes[] = {
    scheme("none", keys("none", "none")),
    scheme("residual_without_loss", keys("none", "residual")),
    scheme("none_with_dgc", keys("none", "dgc")),
    scheme("topk", keys("topk", "residual"), kFew),
    scheme("topk_fused", keys("topk", "residual", "scheduler = \"fusion\""), kFew),
    scheme("topk_strict", keys("topk", "residual"), "nonfinite = \"strict\"\n" + kFew),
    scheme("topk_of_a_bucket", keys("topk", "residual", "scheduler = \"fusion\""),
           kFew + "scope = \"bucket\"\n"),
    scheme("topk_in_halves", keys("topk", "residual"), kFew + "value_type = \"fp16\"\n"),
    scheme("topk_as_signs", keys("topk", "residual"), kFew + "value_type = \"sign\"\n"),
    scheme("topk_with_momentum", keys("topk", "momentum"), kFew),
    scheme("topk_with_ef21", keys("topk", "ef21"), kFew + "[memory.ef21]\nzeta = 0.3\n" + kDense),
    scheme("dgc", keys("dgc", "dgc", "scheduler = \"fusion\""),
           "[compressor.dgc]\ndensity = 0.05\n" + kDense),
    scheme("dgc_strict", keys("dgc", "dgc", "scheduler = \"fusion\""),
           "nonfinite = \"strict\"\n[compressor.dgc]\ndensity = 0.05\n" + kDense),
    scheme("nesterov_without_masking", keys("topk", "dgc"),
           kFew + "[memory.dgc]\nnesterov = true\nmomentum_masking = false\n"),
    scheme("clipped_by_all_norms", keys("topk", "dgc"),
           kFew + "[memory.dgc]\nclipping = \"norm_global\"\nclip = 0.5\n" + kDense),
    scheme("fp16", keys("fp16", "residual")),
    scheme("fp16_with_dgc", keys("fp16", "dgc")),
    scheme("bf16", keys("bf16", "residual")),
    scheme("powersgd", keys("powersgd", "residual"), "[compressor.powersgd]\n" + kRank),
    scheme("powersgd_with_dgc", keys("powersgd", "dgc"), "[compressor.powersgd]\n" + kRank),
    scheme("acpsgd", keys("acpsgd", "residual"), "[compressor.acpsgd]\nrank = 2\n"),
    scheme("acpsgd_with_dgc_fused", keys("acpsgd", "dgc", "scheduler = \"fusion\""),
           "[compressor.acpsgd]\nrank = 2\n"),
    scheme("signsgd", keys("signsgd", "momentum")),
    scheme("efsign", keys("efsign", "residual")),
    scheme("tbq", keys("tbq", "residual")),
    scheme("threshold", keys("threshold", "residual")),
    scheme("qsgd", keys("qsgd", "none")),
    scheme("randomk", keys("randomk", "residual"), "[compressor.randomk]\ndensity = 0.2\n"),
    oktopk(),
    scheme("dear", keys("none", "none", "scheduler = \"dear\"\nroute = \"split\""), "",
           PENSTOCK_SET_DEFERRED_UPDATE),
    scheme("acpsgd_deferred", keys("acpsgd", "residual", "scheduler = \"dear\"\nroute = \"split\""),
           "[compressor.acpsgd]\nrank = 2\n", PENSTOCK_SET_DEFERRED_UPDATE),
    // The values of the ended memory join the result of the first step that counts.
    scheme("switch_to_nothing_kept", keys("topk", "residual"),
           kFew + "[[switch]]\nat_step = 2\n"
                  "set = { scheme.compressor = \"none\", scheme.memory = \"none\" }\n"),
    scheme("switch_to_another_memory", keys("topk", "residual"),
           kFew + "[[switch]]\nat_step = 2\nset = { scheme.memory = \"dgc\" }\n"
                  "[[switch]]\nat_step = 5\nset = { compressor.topk.density = 0.5 }\n"),
    scheme("switch_in_strict_runs", keys("topk", "dgc"),
           "nonfinite = \"strict\"\n" + kFew +
               "[[switch]]\nat_step = 4\nset = { scheme.compressor = \"none\" }\n"),
};

class Forgotten : public ::testing::TestWithParam<std::tuple<NamedScheme, uint32_t>> {};
INSTANTIATE_TEST_SUITE_P(Schemes, Forgotten,
                         ::testing::Combine(::testing::ValuesIn(kSchemes),
                                            ::testing::Values(1, 2, 3, 4)),
                         testing::name_and_size);

TEST_P(Forgotten, StepsLeaveNoTrace) {
  const auto& [scheme, size] = GetParam();
  expect_no_trace(scheme, size);
}

class ForgottenOnRoutes : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ForgottenOnRoutes, ::testing::Values(1, 2, 3, 4));

TEST_P(ForgottenOnRoutes, StepsLeaveNoTrace) {
  struct Route {
    const char* name;
    std::string keys;
    std::string tables;
  };
  const std::string wfbp = "scheduler = \"wfbp\"\n";
  const std::string owned = wfbp + "route = \"shard\"\nowner_memory = \"residual\"";
  const Route routes[] = {
      {"hierarchical", keys("topk", "residual", wfbp + "route = \"hierarchical\""), kFew},
      {"hierarchical dgc", keys("topk", "dgc", wfbp + "route = \"hierarchical\""), kFew + kDense},
      {"hierarchical acpsgd", keys("acpsgd", "residual", wfbp + "route = \"hierarchical\""),
       "[compressor.acpsgd]\nrank = 2\n"},
      {"shard", keys("topk", "residual", wfbp + "route = \"shard\""), kFew},
      {"shard strict", keys("topk", "residual", wfbp + "route = \"shard\""),
       "nonfinite = \"strict\"\n" + kFew},
      {"shard signs", keys("topk", "residual", wfbp + "route = \"shard\""),
       kFew + "value_type = \"sign\"\n"},
      {"shard dgc", keys("topk", "dgc", owned), kFew},
      {"shard threshold", keys("threshold", "residual", wfbp + "route = \"shard\""), ""}};
  const char* const hosts[] = {"0", "0,1", "0,0,1", "0,0,1,1"};
  for (const Route& route : routes)
    expect_no_trace(scheme(route.name, route.keys,
                           route.tables + fmt::format("[collective.loopback]\nhosts = \"{}\"\n",
                                                      hosts[GetParam() - 1])),
                    GetParam());
}

// The scheme of a file, over loopback. `runtime` has more keys of [runtime].
NamedScheme published(const std::filesystem::path& file, const std::string& runtime) {
  std::ifstream stream(file);
  std::string text(std::istreambuf_iterator<char>(stream), {});
  const auto replace = [&](const std::string& what, const std::string& by) {
    if (const size_t at = text.find(what); at != std::string::npos)
      text.replace(at, what.size(), by);
  };
  replace("transport  = \"auto\"", "transport = \"loopback\"");
  if (text.find("\ncollective") == std::string::npos)
    replace("[scheme]\n", "[scheme]\ncollective = \"loopback\"\n");
  text += "\n[runtime]\ndeadline_s = 20\n" + runtime;
  return {file.stem().string(), text, PENSTOCK_SET_DEFERRED_UPDATE};
}

// The files of conf/, sorted.
std::vector<std::filesystem::path> published_files() {
  const auto program = std::filesystem::canonical("/proc/self/exe").parent_path();
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(program / "../share/penstock/conf"))
    if (entry.path().extension() == ".toml") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

// Every number of ranks takes every file in long runs. Otherwise each file is taken on one number
// of ranks from 2 on.
bool takes_file(uint32_t size, size_t file) {
  return test::is_long() || size == 2 + file % 3;
}

TEST_P(ForgottenOnRoutes, StepsLeaveNoTraceUnderThePublishedSchemes) {
  if (test::kSanitized) GTEST_SKIP() << "not all plugins are built";
  const auto files = published_files();
  uint64_t seen = 0, measuring = 0;  // files, and those whose plans depend on times
  for (size_t i = 0; i < files.size(); ++i) {
    if (!takes_file(GetParam(), i)) continue;
    ++seen;
    std::string reason;
    ASSERT_NO_FATAL_FAILURE(
        expect_no_trace(published(files[i], "deterministic = true\n"), GetParam(), &reason));
    if (reason.empty()) continue;
    ++measuring;
    // Two runs of this file differ. Within one run the states must not change.
    EXPECT_NE(reason.find("deterministic"), std::string::npos) << files[i] << ": " << reason;
    const Trace trace = run(published(files[i], ""), GetParam(), true);
    EXPECT_EQ(trace.refused, "") << files[i];
    EXPECT_EQ(trace.forgotten, 6u) << files[i];
  }
  ASSERT_GE(files.size(), 36u);
  EXPECT_GE(seen - measuring, 36 * seen / files.size()) << measuring << " of " << seen;
}

}  // namespace
}  // namespace penstock::forget_test
