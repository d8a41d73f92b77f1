// Checks of schemes against the plugins without a run, and the tables of combinations.
#include "tools/penstock/fit/matrix.hpp"

#include "core/fit/resolve.hpp"
#include "core/plugin/testing.hpp"

#include <gtest/gtest.h>

namespace penstock::matrix_test {
namespace {

using test::contains;

const MatrixCell& cell_of(const Matrix& matrix, std::string_view row, std::string_view column) {
  for (const MatrixCell& cell : matrix.cells)
    if (cell.row == row && cell.column == column) return cell;
  ADD_FAILURE() << "no cell " << row << " with " << column;
  return matrix.cells.front();
}

// Checks a configuration's text with the plugins of the build: its warnings, or its error.
Result<FitAdvice> check(std::string_view text) {
  test::TestHost host;
  Registry registry(host.host.table(), {plugin_directories({}), false});
  PENSTOCK_TRY(registry.scan());
  PENSTOCK_ASSIGN(Config config, load_config_text(text, "scheme.toml", "", {}));
  settle_transport(config, registry, Launched::single);
  return check_fit_of_config(config, registry);
}

void expect_refused(std::string_view text, std::string_view because) {
  const Result<FitAdvice> advice = check(text);
  ASSERT_FALSE(advice.ok()) << text;
  EXPECT_TRUE(contains(std::string(advice.status().message()), std::string(because)))
      << advice.status().message();
  EXPECT_TRUE(advice.status().message().starts_with("scheme.toml:")) << advice.status().message();
}

TEST(SampleFit, WhatARunRefusesIsRefusedWithItsPlace) {
  expect_refused(R"([scheme]
compressor = "powersgd"
memory = "residual"
scheduler = "dear"
collective = "loopback")",
                 "reduces and scatters one summed round");
  expect_refused(R"([scheme]
collective = "oktopk"
compressor = "topk"
memory = "residual")",
                 "is a composite and needs a transport");
  expect_refused(R"([scheme]
collective = "oktopk"
transport = "loopback"
compressor = "signsgd")",
                 "adds up sparse payloads");
  expect_refused(R"([scheme]
collective = "oktopk"
transport = "loopback"
compressor = "topk"
memory = "residual"
[compressor.topk]
value_type = "fp16")",
                 "adds up sparse payloads of float32 values");
  expect_refused(R"([scheme]
collective = "oktopk"
transport = "loopback"
compressor = "topk"
memory = "residual"
[compressor.topk]
value_type = "sign")",
                 "adds up sparse payloads of float32 values");
  expect_refused(R"([scheme]
compressor = "topk"
memory = "none"
collective = "loopback"
[compressor.topk]
value_type = "sign")",
                 "works only if the memory keeps the values that were not sent");
  expect_refused(R"([scheme]
compressor = "topk"
memory = "residual"
owner_memory = "none"
route = "shard"
collective = "loopback"
[compressor.topk]
value_type = "sign")",
                 "owners encode sums again");
}

TEST(SampleFit, ARefusalNamesPluginsOfTheBuildThatWouldDo) {
  expect_refused(R"([scheme]
compressor = "topk"
memory = "none"
collective = "oktopk"
transport = "loopback")",
                 "keeps nothing; use memory = \"residual\"");
  expect_refused("[scheme]\nscheduler = \"fusion\"\nroute = \"split\"\ncollective = \"loopback\"",
                 "change scheme.route, or use scheduler = \"dear\"");
  const auto warning = [](std::string_view compressor) {
    const auto advice = check(fmt::format(
        "[scheme]\ncompressor = \"{}\"\nmemory = \"none\"\ncollective = \"loopback\"", compressor));
    return advice.ok() && !advice.value().warnings.empty() ? advice.value().warnings[0]
                                                           : std::string("no warning");
  };
  EXPECT_TRUE(contains(warning("topk"), "memory = \"residual\"")) << warning("topk");
  EXPECT_TRUE(contains(warning("signum"), "memory = \"momentum\" has a momentum"))
      << warning("signum");
}

// A scheme whose sums within a host use a transport that may add in any order. Sums between hosts
// use the transport of all ranks.
std::string over_native_inside(std::string_view compressor, std::string_view more) {
  return fmt::format(R"([scheme]
compressor = "{}"
memory = "residual"
route = "hierarchical"
[transport]
local = "native"
[collective.native]
plugin = "mpi"
algorithm = "native"
{})",
                     compressor, more);
}

TEST(SampleFit, WhatALevelsOwnTransportLacksIsRefusedWithItsName) {
  expect_refused(over_native_inside("topk", "[runtime]\ndeterministic = true"),
                 "which collective \"native\" does not promise (RANK_ORDER)");
  expect_refused(over_native_inside("powersgd", ""),
                 "which collective \"native\" does not promise (SAME_BITS)");
  EXPECT_TRUE(check(over_native_inside("topk", "")).ok());
}

TEST(SampleFit, ATransportOfALevelThatTheRouteDoesNotHaveIsSaidToBeIdle) {
  const auto advice = check("[transport]\ncross = \"loopback\"");
  ASSERT_TRUE(advice.ok()) << advice.status().message();
  ASSERT_EQ(advice.value().warnings.size(), 1u);
  EXPECT_TRUE(
      contains(advice.value().warnings[0],
               "transport.cross = \"loopback\" carries no message of this run: route \"flat\" has "
               "no messages only between hosts"))
      << advice.value().warnings[0];
}

TEST(SampleFit, EveryStageAndEveryRuleIsLookedAt) {
  expect_refused(R"([scheme]
scheduler = "dear"
collective = "loopback"
[[switch]]
at_step = 10
set = { scheme = { compressor = "topk", memory = "residual" } })",
                 "from step 10 on");
  expect_refused(R"([scheme]
scheduler = "dear"
collective = "loopback"
[[rule]]
match = { name = "head.*", dims = { min = 2 } }
compressor = "topk"
memory = "residual")",
                 "topk");
}

TEST(SampleFit, AnExemptionBySizeDoesNotHideWhatTheOthersGet) {
  expect_refused(R"([scheme]
compressor = "topk"
memory = "residual"
scheduler = "dear"
collective = "loopback"
[[rule]]
match = { elements = { max = 1000000 } }
compressor = "none"
memory = "none")",
                 "topk");
}

TEST(SampleFit, ARuleThatCannotBeReachedIsNotHeldAgainstTheScheme) {
  const auto advice = check(R"([scheme]
scheduler = "dear"
collective = "loopback"
[[rule]]
match = { dims = { min = 1 } }
compressor = "none"
[[rule]]
match = { dims = 2 }
compressor = "topk"
memory = "residual")");
  EXPECT_TRUE(advice.ok()) << advice.status().message();
}

TEST(SampleFit, WarningsOfAStageAreGivenOnce) {
  const auto advice = check(R"([scheme]
compressor = "topk"
collective = "loopback"
[[switch]]
at_step = 3
set = { compressor = { topk = { density = 0.1 } } })");
  ASSERT_TRUE(advice.ok()) << advice.status().message();
  ASSERT_EQ(advice.value().warnings.size(), 1u);
  EXPECT_TRUE(contains(advice.value().warnings[0], "memory = \"residual\""));
}

TEST(Matrix, HoldsEveryPairWithItsReason) {
  test::PrivateFolder folder;
  folder.add("identity", "a.so");
  folder.add("keep", "b.so");
  folder.add("missing_encode", "c.so");
  test::TestHost host;
  Registry registry(host.host.table(), {{folder.path()}, false});
  ASSERT_TRUE(registry.scan().ok());
  const std::vector<Matrix> matrices = fit_matrices(registry);
  ASSERT_EQ(matrices.size(), 3u);
  const std::vector<MatrixCell>& cells = matrices[0].cells;
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_EQ(cells[0].row, "identity-c");
  EXPECT_EQ(cells[0].column, "keep-c");
  EXPECT_EQ(cells[0].verdict, Verdict::ok);
  EXPECT_EQ(cells[1].verdict, Verdict::no);
  EXPECT_TRUE(contains(cells[1].note, "lacks the mandatory member encode"));
}

TEST(Matrix, TellsPoorFromOkAndNo) {
  test::TestHost host;
  Registry registry(host.host.table(), {plugin_directories({}), false});
  ASSERT_TRUE(registry.scan().ok());
  const std::vector<Matrix> matrices = fit_matrices(registry);
  EXPECT_EQ(cell_of(matrices[0], "topk", "residual").verdict, Verdict::ok);
  EXPECT_EQ(cell_of(matrices[0], "topk", "none").verdict, Verdict::poor);
  EXPECT_EQ(cell_of(matrices[1], "topk", "route flat").verdict, Verdict::ok);
  EXPECT_EQ(cell_of(matrices[1], "topk", "route split").verdict, Verdict::no);
  EXPECT_EQ(cell_of(matrices[1], "topk", "route hierarchical").verdict, Verdict::ok);
  EXPECT_EQ(cell_of(matrices[1], "topk", "route shard").verdict, Verdict::ok);
  EXPECT_EQ(cell_of(matrices[1], "powersgd", "route shard").verdict, Verdict::poor);
  EXPECT_EQ(cell_of(matrices[1], "acpsgd", "route split").verdict, Verdict::ok);
  EXPECT_EQ(cell_of(matrices[1], "topk", "oktopk").verdict, Verdict::ok);
  EXPECT_EQ(cell_of(matrices[1], "signsgd", "oktopk").verdict, Verdict::no);
  EXPECT_EQ(cell_of(matrices[2], "dear", "route split").verdict, Verdict::ok);
  EXPECT_EQ(cell_of(matrices[2], "dear", "route flat").verdict, Verdict::no);
}

}  // namespace
}  // namespace penstock::matrix_test
