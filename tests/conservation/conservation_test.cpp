// Every built compressor, with both memories that keep unsent values. Over 100 steps the decoded
// sums over ranks plus the kept values of all ranks equal the sum of all gradients. In each step
// the rig checks that all ranks decode equal bits.
#include <support/conservation.hpp>
#include <support/every_compressor.hpp>

namespace penstock::test {
namespace {

constexpr uint64_t kSteps = 100;
const std::vector<Shape> kShapes{{6, 10}, {19}, {4, 3, 2}, {1}};

struct Memory {
  const char* name;
  OptionSettings options;
};
// With these options the kept values are the plain sum of the unsent values.
const Memory kMemories[] = {{"residual", {{"beta", 1.0}, {"gamma", 1.0}}},
                            {"dgc", {{"momentum", 0.0}}}};

// A vote is not a sum, so the contribution of a rank cannot be computed from the result.
bool votes(const CompressorRig& rig) {
  const std::vector<PlannedRound>& rounds = rig.need(0).rounds;
  return !rounds.empty() && rounds.back().c.result == PENSTOCK_RESULT_FINAL;
}

bool keeps_something(const CompressorRig& rig) {
  for (uint64_t i = 0; i < rig.n_items(); ++i) {
    if (rig.memory_need(i).work_is != PENSTOCK_WORK_IS_STATE) continue;
    for (const float kept : rig.work(0, i))
      if (kept != 0) return true;
  }
  return false;
}

class Conservation : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(Conservation, DecodedSumsAndWhatIsKeptAddUpToAllGradients) {
  const LoadedPlugin plugin = load_plugin(GetParam().string());
  const OptionSettings options = small_gradient_options(plugin);
  for (const Memory& memory : kMemories)
    for (uint32_t ranks = 1; ranks <= 4; ++ranks) {
      const RigSettings settings{.ranks = ranks, .ranks_per_slice = ranks / 2};
      const LoadedPlugin kept_by = load_plugin("memory", memory.name);
      CompressorRig rig(settings, kShapes, plugin, options, kept_by, memory.options);
      if (votes(rig)) GTEST_SKIP() << "the result is a vote, not a sum";
      SCOPED_TRACE(std::string(memory.name) + " on " + std::to_string(ranks) + " ranks");
      // The elements of an item share scales, ranges and factors.
      ASSERT_NO_FATAL_FAILURE(
          expect_conservation(rig, {"heavy_tailed", heavy_tailed}, kSteps, KeptSize::kByLargest));
      CompressorRig once(settings, kShapes, plugin, options, kept_by, memory.options);
      once.step(draw_gradients(heavy_tailed, ranks, {60, 19, 24, 1}, 0));
      if ((traits_of(plugin).flags & PENSTOCK_COMPRESSOR_NEEDS_MEMORY) != 0) {
        EXPECT_TRUE(keeps_something(once)) << "nothing was left over, and so nothing is shown";
      }
    }
}

PENSTOCK_TEST_EVERY_COMPRESSOR(Conservation);

}  // namespace
}  // namespace penstock::test
