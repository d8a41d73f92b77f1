// Signum with and without momentum in its work. signsgd_test.cpp tests the vote in detail, so these
// tests cover only the momentum.
#include <support/quantised.hpp>

namespace penstock::test {
namespace {

LoadedPlugin signum() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}

// sign(sum over ranks of sign(x)).
std::vector<float> vote(const RankTensors& x, uint64_t item) {
  std::vector<float> result(x[0][item].size());
  for (uint64_t e = 0; e < result.size(); ++e) {
    int sum = 0;
    for (const Tensors& of_rank : x) sum += (of_rank[item][e] > 0) - (of_rank[item][e] < 0);
    result[e] = static_cast<float>((sum > 0) - (sum < 0));
  }
  return result;
}

TEST(Signum, VotesOverTheSignsOfWhatTheMemoryGivesIt) {
  uint32_t ranks = 0;
  for (const Distribution& distribution : distributions()) {
    ranks = ranks % 4 + 1;
    CompressorRig rig({.ranks = ranks}, awkward_vectors(), signum());
    const RankTensors x = draw_gradients(distribution.draw, ranks, awkward_sizes(), 0);
    const Tensors result = rig.step(x);
    for (uint64_t i = 0; i < result.size(); ++i)
      ASSERT_EQ(result[i], vote(x, i)) << distribution.name << ", item " << i;
  }
}

TEST(Signum, SixteenMillionElementsEqualTheOracle) {
  const auto sign = [](float x) { return static_cast<float>((x > 0) - (x < 0)); };
  expect_large_gradients_equal({.plugin = signum(), .keeps = false}, each_element(sign));
}

// m = beta m + (1 - beta) g on every rank, and the vote over sign(m): algorithm 2 of the paper.
TEST(Signum, WithTheMomentumItVotesOverSignsOfMomenta) {
  const float beta = 0.75f;
  CompressorRig rig({.ranks = 3}, {{200}}, signum(), {}, load_plugin("memory", "momentum"),
                    {{"momentum", double{beta}}});
  RankTensors momenta(3, Tensors{std::vector<float>(200)});
  for (uint64_t step = 0; step < 30; ++step) {
    const RankTensors gradients = draw_gradients(heavy_tailed, 3, {200}, step);
    for (uint32_t r = 0; r < 3; ++r)
      for (uint64_t e = 0; e < 200; ++e) {
        float& m = momenta[r][0][e];
        m = beta * m + (1 - beta) * gradients[r][0][e];
      }
    ASSERT_EQ(rig.step(gradients)[0], vote(momenta, 0)) << "step " << step;
  }
}

TEST(Signum, TheResultIsFinalAndNeedsAMemory) {
  const LoadedPlugin plugin = signum();
  CompressorRig rig({.ranks = 2}, {{10}}, plugin);
  EXPECT_EQ(rig.need(0).rounds[0].c.result, uint32_t{PENSTOCK_RESULT_FINAL});
  penstock_compressor_traits traits{};
  traits.struct_size = sizeof traits;
  const CompressorInstance instance(plugin.compressor(), *plugin.module);
  PENSTOCK_EXPECT_OK(instance.table().describe(instance.self(), &traits));
  EXPECT_EQ(traits.flags, uint32_t{PENSTOCK_COMPRESSOR_NEEDS_MEMORY});
}

TEST(Signum, PayloadsAreInput) {
  CompressorRig rig({.ranks = 1}, {{640}}, signum());
  expect_refused(
      rig, heavy_tailed(640, 1), [](OwnedPayload& p) { p.section(0).count = 9; }, "expected 10");
  expect_any_bytes_are_survived(rig);
}

}  // namespace
}  // namespace penstock::test
