// The numbers in docs/thresholds.md. After five steps our threshold methods send within a tenth of
// the wanted number, for every distribution of the entries.
#include <gtest/gtest.h>

#include "kept_share.hpp"

namespace penstock::test {
namespace {

// Calls check(share, description) for every law and density.
template <typename Check>
void for_each_share(const ThresholdMethod& method, Check&& check) {
  for (const Distribution& law : entry_laws())
    for (const double density : {0.01, 0.001})
      check(kept_share(method, law, density),
            method.name + ", " + law.name + ", density " + std::to_string(density));
}

TEST(Thresholds, AfterFiveStepsTheNumberSentIsWithinATenth) {
  for (const ThresholdMethod& method : threshold_methods()) {
    if (method.name == "DGC") continue;
    for_each_share(method, [](const KeptShare& share, const std::string& what) {
      EXPECT_GE(share.least, 0.9) << what;
      EXPECT_LE(share.most, 1.1) << what;
    });
  }
}

// The correction follows the paper: no correction from four fifths on, and never more than k.
TEST(Thresholds, DgcStaysInsideThePublishedBand) {
  for_each_share({"DGC", "dgc"}, [](const KeptShare& share, const std::string& what) {
    EXPECT_GE(share.least, 0.8) << what;
    EXPECT_LE(share.most, 1.0) << what;
  });
}

}  // namespace
}  // namespace penstock::test
