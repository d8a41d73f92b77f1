// Plugins that know less than we do, built from the headers of earlier versions of the ABI, through
// the real core: found and loaded by its loader, planned, and stepped by its engine over loopback.
#include "core/plugin/loader.hpp"
#include "core/set/testing.hpp"

namespace penstock::old_plugins_test {
namespace {

using testing::make_set;
using testing::run_step;
using testing::scheme_text;
using testing::with_ranks;

constexpr uint32_t kRanks = 2;
constexpr uint64_t kSteps = 4;

struct Version {
  const char* folder;
  uint32_t minor;
};

class OldPlugins : public ::testing::TestWithParam<Version> {
 protected:
  std::string folder() const {
    return fmt::format("{}/{}", PENSTOCK_OLD_PLUGINS, GetParam().folder);
  }
};
INSTANTIATE_TEST_SUITE_P(Abi, OldPlugins,
                         ::testing::Values(Version{"0_1", 1}, Version{"0_2", 2}, Version{"0_3", 3},
                                           Version{"0_4", 4}, Version{"0_5", 5}, Version{"0_6", 6},
                                           Version{"0_7", 7}),
                         [](const auto& version) { return std::string(version.param.folder); });

TEST_P(OldPlugins, SayWhatTheyWereBuiltFor) {
  for (const char* file : {"compressor-bf16_c.so", "memory-keep-c.so", "scheduler-each-c.so"}) {
    Result<InspectedFile> inspected = inspect_plugin(folder() + "/" + file);
    ASSERT_OK(inspected.status());
    EXPECT_EQ(inspected->record.abi_minor, GetParam().minor) << file;
    EXPECT_LT(inspected->record.abi_minor, uint32_t{PENSTOCK_ABI_MINOR}) << file;
  }
}

// Multiples of 1/4 below 2^8 are exact in bfloat16, and so are their sums: nothing is kept back.
TEST_P(OldPlugins, TrainTogetherOverLoopback) {
  const std::string scheme =
      scheme_text("compressor = \"bf16_c\"\nmemory = \"keep-c\"\nscheduler = \"each-c\"",
                  fmt::format("allow_insecure_paths = true\nplugin_path = [\"{}\"]\n", folder()));
  with_ranks(kRanks, scheme, [](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, {{"weight", {6, 7}}, {"bias", {5}}});
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
}  // namespace penstock::old_plugins_test
