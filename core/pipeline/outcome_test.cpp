// What memories keep after steps with an outcome of their own: void, not applied, summed, or with a
// switch behind them.

#include "core/pipeline/testing.hpp"

#include <cmath>
#include <limits>

namespace penstock {
namespace {

using testing::make_set;
using testing::run_step;
using testing::scheme_text;
using testing::with_ranks;

using Values = std::vector<std::vector<float>>;

std::string scheme_of(const std::string& compressor, const std::string& memory,
                      const std::string& tables = "") {
  return scheme_text(
      fmt::format("compressor = \"{}\"\nmemory = \"{}\"\nscheduler = \"wfbp\"", compressor, memory),
      tables);
}

// Steps of one gradient of two ones, on both ranks; in step 1 rank 1 has an infinity in it.
void expect_momentum_to_survive(const std::string& tables) {
  with_ranks(2, scheme_of("none", "dgc", tables), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, {{"bias", {2}}});
    ASSERT_OK(set.status());
    const auto step = [&](float second, bool applied) {
      Values gradients{{1, second}};
      EXPECT_TRUE(run_step(*set.value(), gradients, applied).ok());
      return gradients[0];
    };
    float u = 1;
    EXPECT_EQ(step(1, true), (std::vector<float>{u, u})) << tables;
    const auto spoiled = step(rank == 1 ? std::numeric_limits<float>::infinity() : 1, false);
    EXPECT_FALSE(std::isfinite(spoiled[1])) << tables;
    for (int i = 0; i < 2; ++i) {
      u = 0.9f * u + 1;
      EXPECT_EQ(step(1, true), (std::vector<float>{u, u})) << tables;
    }
  });
}

TEST(Outcomes, AnInfinityIsNotKeptInTheMomentumOfALoneDenseGradient) {
  expect_momentum_to_survive("");
  expect_momentum_to_survive("nonfinite = \"strict\"\n");
  expect_momentum_to_survive("[memory.dgc]\nclipping = \"norm\"\nclip = 2\n");
}

}  // namespace
}  // namespace penstock
