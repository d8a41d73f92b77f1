// Plugins that know more than we do, through the real core: found and loaded by its loader,
// planned, and stepped by its engine over loopback. What they leave zero is cut off; what they set
// and we do not know is refused before the first step.
#include "core/set/testing.hpp"

#include <filesystem>

namespace penstock::growth_engine_test {
namespace {

using testing::make_set;
using testing::run_step;
using testing::scheme_text;
using testing::with_ranks;

constexpr uint32_t kRanks = 2;
constexpr uint64_t kSteps = 8;
const std::vector<testing::GradientShape> kShapes{{"weight", {6, 7}}, {"bias", {5}}};

// Only plugins of `folder` (of tests/abi in the build tree) and those of the product are found.
std::string scheme_of(const std::string& compressor, const std::string& folder) {
  return scheme_text(fmt::format("compressor = \"{}\"\nmemory = \"residual\"", compressor),
                     fmt::format("allow_insecure_paths = true\nplugin_path = [\"{}/{}\"]\n",
                                 PENSTOCK_GROWN_PLUGINS, folder));
}

// Multiples of 1/4 below 2^8: exact in bfloat16, so that sums over ranks and steps are exact too.
std::vector<std::vector<float>> gradients_of(uint32_t rank) {
  std::vector<std::vector<float>> gradients = {std::vector<float>(42), std::vector<float>(5)};
  for (auto& values : gradients)
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = float((i * 7 + rank * 3) % 15) / 4 - 1.5f;
  return gradients;
}

class GrownPlugins : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Compressors, GrownPlugins, ::testing::Values("bf16_c", "template"));

// Both compressors keep what they do not send in the memory. What has arrived after some steps,
// plus what is still kept, is what went in; the template sends each entry every few steps.
TEST_P(GrownPlugins, RunThroughTheEngine) {
  with_ranks(kRanks, scheme_of(GetParam(), GetParam()), [](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    std::vector<std::vector<double>> arrived = {std::vector<double>(42), std::vector<double>(5)};
    for (uint64_t step = 0; step < kSteps; ++step) {
      auto gradients = gradients_of(rank);
      ASSERT_OK(run_step(*set.value(), gradients));
      for (size_t g = 0; g < gradients.size(); ++g)
        for (size_t i = 0; i < gradients[g].size(); ++i) arrived[g][i] += gradients[g][i];
    }
    const auto first = gradients_of(0), second = gradients_of(1);
    const double period =
        std::string_view(GetParam()) == "bf16_c" ? 1 : 4;  // the template's stride
    for (size_t g = 0; g < arrived.size(); ++g)
      for (size_t i = 0; i < arrived[g].size(); ++i) {
        const double mean = (double{first[g][i]} + second[g][i]) / 2;
        // Entry i of the template goes out in the steps where (i + step) fits its stride: after
        // eight steps at most three of them are still kept.
        const double kept = arrived[g][i] - kSteps * mean;
        EXPECT_LE(std::abs(kept), (period - 1) * std::abs(mean)) << g << " " << i;
      }
  });
}

TEST(GrownPlugin, AFieldOfItsPlanThatWeDoNotKnowIsRefused) {
  with_ranks(kRanks, scheme_of("bf16_c", "asks"), [](Runtime& runtime, uint32_t) {
    auto set = make_set(runtime, kShapes);
    ASSERT_FALSE(set.ok());
    EXPECT_EQ(set.status().code(), Code::unimplemented) << set.status().message();
    EXPECT_NE(set.status().message().find("in phase 0: penstock_round has a field"),
              std::string_view::npos)
        << set.status().message();
  });
}

}  // namespace
}  // namespace penstock::growth_engine_test
