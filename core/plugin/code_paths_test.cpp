// All ranks must come to one conclusion from the properties of all processors.
#include "core/plugin/code_paths.hpp"

#include "core/plugin/testing.hpp"

#include <kernels/fastest_path.hpp>

namespace penstock::code_paths_test {
namespace {

using test::contains;

const std::string kWide = "runs portable avx2 avx512\n";
const std::string kMiddle = "runs portable avx2\n";
const std::string kMeasured =
    kWide + "fastest select avx2\nfastest sign avx512\nfastest - avx512\n";

TEST(CodePaths, RankZerosFastestAreTakenWhereAllRunThem) {
  const auto chosen = choose_code_paths({kMeasured, kWide, kWide}, "auto");
  ASSERT_TRUE(chosen.ok()) << chosen.status().message();
  EXPECT_EQ(chosen.value(), (CodePaths{{"select", "avx2"}, {"sign", "avx512"}, {"", "avx512"}}));
}

TEST(CodePaths, ARankThatCannotRunThemLowersThemForAll) {
  const auto chosen = choose_code_paths({kMeasured, kMiddle, kWide}, "auto");
  ASSERT_TRUE(chosen.ok()) << chosen.status().message();
  EXPECT_EQ(chosen.value(), (CodePaths{{"select", "avx2"}, {"sign", "avx2"}, {"", "avx2"}}));
  EXPECT_EQ(choose_code_paths({kMeasured, "runs portable\n"}, "auto").value(),
            (CodePaths{{"select", "portable"}, {"sign", "portable"}, {"", "portable"}}));
}

TEST(CodePaths, AForcedPathHoldsForEveryFamily) {
  EXPECT_EQ(choose_code_paths({kMeasured, kMiddle}, "avx2").value(), (CodePaths{{"", "avx2"}}));
  const auto refused = choose_code_paths({kWide, kMiddle}, "avx512");
  EXPECT_EQ(refused.status().code(), Code::failed_precondition);
  EXPECT_TRUE(contains(refused.status().message(),
                       "\"avx512\", but the processor of rank 1 runs only portable, avx2"))
      << refused.status().message();
}

TEST(CodePaths, WhatIsNoOfferIsRefused) {
  for (const char* text : {"", "runs\n", "fastest select\n", "walks portable\n"})
    EXPECT_EQ(choose_code_paths({kMeasured, text}, "auto").status().code(), Code::internal) << text;
}

TEST(CodePaths, ThisMachinesOfferNamesPathsThatItRuns) {
  const auto chosen = choose_code_paths({code_path_offer(true), code_path_offer(false)}, "auto");
  ASSERT_TRUE(chosen.ok()) << chosen.status().message();
  ASSERT_EQ(chosen.value().size(), kernels::code_path_families().size());
  for (const auto& [family, path] : chosen.value()) {
    EXPECT_EQ(path, kernels::code_path_name(kernels::fastest_code_path(family))) << family;
    EXPECT_EQ(kernels::code_path_name(kernels::code_path_named(path)), path) << "it runs here";
  }
}

}  // namespace
}  // namespace penstock::code_paths_test
