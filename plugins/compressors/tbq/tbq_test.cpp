// Threshold binary quantisation against plain loops, and payloads that no rank of ours would send.
#include <support/coded.hpp>
#include <support/conservation.hpp>

#include <cmath>

namespace penstock::test {
namespace {

LoadedPlugin tbq() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin residual() {
  return load_plugin("memory", "residual");
}

float sent(float x, float threshold) {
  if (x >= threshold) return threshold;
  return x <= -threshold ? -threshold : 0.0f;
}

TEST(Tbq, EqualsTheOracleOnEveryDistributionAndSize) {
  const float threshold = 0.3f;
  for (const Distribution& distribution : distributions()) {
    const uint32_t ranks = 3;
    CompressorRig rig({.ranks = ranks, .ranks_per_slice = 2}, awkward_vectors(), tbq(),
                      {{"threshold", 0.3}}, residual());
    RankTensors kept(ranks);
    for (auto& of_rank : kept)
      for (const uint64_t n : awkward_sizes()) of_rank.emplace_back(n);
    for (uint64_t step = 0; step < 3; ++step) {
      const RankTensors gradients = draw_gradients(distribution.draw, ranks, awkward_sizes(), step);
      const Tensors mean = rig.step(gradients);
      for (uint64_t i = 0; i < mean.size(); ++i) {
        std::vector<float> total(mean[i].size());
        for (uint32_t r = 0; r < ranks; ++r) {
          std::vector<float>& work = kept[r][i];
          for (uint64_t e = 0; e < work.size(); ++e) {
            work[e] += gradients[r][i][e];
            const float value = sent(work[e], threshold);
            total[e] += value;
            work[e] -= value;
          }
          ASSERT_EQ(rig.work(r, i), work) << distribution.name << " of " << work.size();
        }
        for (float& value : total) value /= static_cast<float>(ranks);
        ASSERT_EQ(mean[i], total) << distribution.name << " of " << total.size();
      }
    }
  }
}

TEST(Tbq, NothingIsLostOver100StepsOfEveryKind) {
  for (const Distribution& distribution : distributions())
    for (const uint32_t ranks : {1u, 2u, 3u, 4u}) {
      CompressorRig rig({.ranks = ranks, .check_mass = true, .mass_tolerance = 2e-7},
                        {{10, 13}, {31}, {0}}, tbq(), {{"threshold", 0.5}}, residual());
      expect_conservation(rig, distribution);
    }
}

TEST(Tbq, TheThresholdItselfIsSentAndTheTailToo) {
  CompressorRig rig({.ranks = 1}, {{7}}, tbq(), {{"threshold", 0.5}}, residual());
  const Tensors result = rig.step({{{0.5f, -0.5f, 0.4999f, 0, 3, -3, -0.6f}}});
  EXPECT_EQ(result[0], (std::vector<float>{0.5f, -0.5f, 0, 0, 0.5f, -0.5f, -0.5f}));
  EXPECT_EQ(rig.work(0, 0), (std::vector<float>{0, 0, 0.4999f, 0, 2.5f, -2.5f, -0.6f + 0.5f}));
}

// Without a memory work is the scaled gradient: the same elements must pass, and the same be sent.
TEST(Tbq, LossScalingDoesNotMoveTheThreshold) {
  const std::vector<float> x{0.6f, 0.4f, -1, 0};
  for (const bool kept : {false, true}) {
    CompressorRig rig({.ranks = 2}, {{4}}, tbq(), {{"threshold", 0.5}},
                      kept ? std::optional(residual()) : std::nullopt);
    StepSettings settings;
    settings.grad_scale = 1024;
    EXPECT_EQ(rig.step({{x}, {x}}, settings)[0], (std::vector<float>{0.5f, 0, -0.5f, 0}));
  }
}

TEST(Tbq, SendsTwoBitsForEachElement) {
  CompressorRig rig({.ranks = 1}, {{1001}}, tbq());
  EXPECT_EQ(rig.need(0).rounds[0].c.combine, uint32_t{PENSTOCK_COMBINE_GATHER});
  EXPECT_EQ(rig.need(0).rounds[0].sections[0].capacity, 32u);
  EXPECT_EQ(rig.need(0).rounds[0].sections[1].capacity, 1u);
  std::vector<float> x(1001);
  x[0] = 1;
  x[33] = -1;
  const PayloadPointer payload = encode_once(rig, x);
  EXPECT_EQ(entry<uint64_t>(*payload, 0, 0), 1u);
  EXPECT_EQ(entry<uint64_t>(*payload, 0, 1), 2u << 2);
}

TEST(Tbq, EveryCodePathSendsTheSame) {
  const RankTensors gradients = draw_gradients(heavy_tailed, 2, {70001}, 5);
  Tensors first;
  for (const char* path : {"portable", "avx2", "avx512"}) {  // one that does not run is replaced
    set_code_path(path);
    CompressorRig rig({.ranks = 2}, {{70001}}, tbq(), {}, residual());
    const Tensors mean = rig.step(gradients);
    if (first.empty()) first = mean;
    EXPECT_EQ(mean, first) << path;
  }
  set_code_path("");
}

TEST(Tbq, PayloadsThatCannotBeAreRefusedByRankAndGradient) {
  CompressorRig rig({.ranks = 1}, {{100}}, tbq());
  const std::vector<float> x = distributions()[0].draw(100, 1);
  const auto refused = [&](const std::function<void(OwnedPayload&)>& change, const char* why) {
    expect_refused(rig, x, change, why);
  };
  refused([](OwnedPayload& p) { p.section(0).count = 3; }, "expected 4");
  refused([](OwnedPayload& p) { p.section(0).count = UINT64_MAX; }, "at most 4");
  refused([](OwnedPayload& p) { p.section(1).count = 0; }, "expected 1");
  refused([](OwnedPayload& p) { entry<uint64_t>(p, 0, 1) |= uint64_t{3} << 62; }, "in word 1");
  refused([](OwnedPayload& p) { entry<uint64_t>(p, 0, 3) |= 3u << 6; }, "in word 3");
  refused([](OwnedPayload& p) { entry<float>(p, 1, 0) = NAN; }, "threshold");
  refused([](OwnedPayload& p) { entry<float>(p, 1, 0) = INFINITY; }, "threshold");
  refused([](OwnedPayload& p) { entry<float>(p, 1, 0) = 0; }, "threshold 0");
  // What lies behind the last element is nobody's business.
  const PayloadPointer payload = encode_once(rig, x);
  entry<uint64_t>(*payload, 0, 3) |= uint64_t{3} << 8;
  EXPECT_TRUE(decode_once(rig, *payload).ok());
}

TEST(Tbq, ThresholdsBelowTheSmallestNormalFloatAreRefused) {
  EXPECT_THROW(CompressorRig({.ranks = 1}, {{1}}, tbq(), {{"threshold", 1e-50}}),
               std::runtime_error);
}

}  // namespace
}  // namespace penstock::test
