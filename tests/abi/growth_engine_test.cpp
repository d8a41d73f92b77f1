// Plugins of newer and older versions of the ABI, through the core itself: the loader finds and
// loads the plugins, and the engine runs steps with them over loopback. If a newer plugin leaves a
// field zero, the core cuts the field off. If a newer plugin sets a field that the core does not
// know, the core refuses the plugin before the first step. A field that an older plugin does not
// know is zero.
#include "core/plugin/loader.hpp"
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

// The loader finds only the plugins of `folder` and the product's plugins.
std::string scheme_with(const std::string& plugins, const std::string& folder) {
  return scheme_text(plugins,
                     fmt::format("allow_insecure_paths = true\nplugin_path = [\"{}\"]\n", folder));
}

std::string scheme_of(const std::string& compressor, const std::string& folder) {
  return scheme_with(fmt::format("compressor = \"{}\"\nmemory = \"residual\"", compressor),
                     fmt::format("{}/{}", PENSTOCK_LONGER_PLUGINS, folder));
}

// Multiples of 1/4 below 2^8 are exact in bfloat16, so sums over ranks and steps are exact too.
std::vector<std::vector<float>> gradients_of(uint32_t rank) {
  std::vector<std::vector<float>> gradients = {std::vector<float>(42), std::vector<float>(5)};
  for (auto& values : gradients)
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = float((i * 7 + rank * 3) % 15) / 4 - 1.5f;
  return gradients;
}

class LongerPlugins : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Compressors, LongerPlugins, ::testing::Values("bf16_c", "template"));

// Both compressors leave unsent values in the memory. The results of some steps plus the kept
// values equal the inputs. The template plugin sends each entry once in a few steps.
TEST_P(LongerPlugins, RunThroughTheEngine) {
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
        // The template sends entry i in the steps in which (i + step) is a multiple of the stride.
        // So after eight steps at most three gradients of an entry are still kept.
        const double kept = arrived[g][i] - kSteps * mean;
        EXPECT_LE(std::abs(kept), (period - 1) * std::abs(mean)) << g << " " << i;
      }
  });
}

TEST(LongerPlugin, AFieldOfItsPlanThatWeDoNotKnowIsRefused) {
  with_ranks(kRanks, scheme_of("bf16_c", "asks"), [](Runtime& runtime, uint32_t) {
    auto set = make_set(runtime, kShapes);
    ASSERT_FALSE(set.ok());
    EXPECT_EQ(set.status().code(), Code::unimplemented) << set.status().message();
    EXPECT_NE(set.status().message().find("in phase 0: penstock_round has a field"),
              std::string_view::npos)
        << set.status().message();
  });
}

TEST(ShorterPlugins, SayWhatTheyWereBuiltFor) {
  for (const char* file : {"compressor-bf16_c.so", "memory-keep-c.so", "scheduler-each-c.so"}) {
    Result<InspectedFile> inspected =
        inspect_plugin(fmt::format("{}/{}", PENSTOCK_SHORTER_PLUGINS, file));
    ASSERT_OK(inspected.status());
    EXPECT_EQ(inspected->record.abi_minor + 1, uint32_t{PENSTOCK_ABI_MINOR}) << file;
  }
}

// Multiples of 1/4 below 2^8 are exact in bfloat16, and so are their sums, so no value is kept.
TEST(ShorterPlugins, TrainTogetherOverLoopback) {
  const std::string scheme =
      scheme_with("compressor = \"bf16_c\"\nmemory = \"keep-c\"\nscheduler = \"each-c\"",
                  PENSTOCK_SHORTER_PLUGINS);
  with_ranks(kRanks, scheme, [](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    for (uint64_t step = 0; step < kSteps; ++step) {
      std::vector<std::vector<float>> gradients = {std::vector<float>(42), std::vector<float>(5)};
      const auto gradient = [&](uint64_t i, uint32_t of_rank) {
        return float((i * 7 + of_rank * 3 + step) % 15) / 4 - 1.5f;
      };
      for (auto& values : gradients)
        for (uint64_t i = 0; i < values.size(); ++i) values[i] = gradient(i, rank);
      ASSERT_OK(run_step(*set.value(), gradients));
      for (const auto& values : gradients)
        for (uint64_t i = 0; i < values.size(); ++i)
          EXPECT_EQ(values[i], (gradient(i, 0) + gradient(i, 1)) / 2) << i << ", step " << step;
    }
  });
}

}  // namespace
}  // namespace penstock::growth_engine_test
