// Majority vote against counting, the data that travels, and payloads that no Penstock rank would
// send.
#include <support/coded.hpp>

#include <cmath>
#include <cstring>

namespace penstock::test {
namespace {

LoadedPlugin signsgd() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}

int sign(float value) {
  return (value > 0) - (value < 0);
}

// sign(sum of signs) over the ranks that vote.
std::vector<float> vote(const RankTensors& gradients, uint64_t item,
                        const std::vector<uint32_t>& silent = {}) {
  std::vector<float> result(gradients[0][item].size());
  for (uint64_t e = 0; e < result.size(); ++e) {
    int sum = 0;
    for (uint32_t r = 0; r < gradients.size(); ++r)
      if (std::find(silent.begin(), silent.end(), r) == silent.end())
        sum += sign(gradients[r][item][e]);
    result[e] = static_cast<float>((sum > 0) - (sum < 0));
  }
  return result;
}

std::vector<Shape> awkward_shapes() {
  std::vector<Shape> shapes = awkward_vectors();
  shapes.push_back({3, 5, 7});
  return shapes;
}
std::vector<uint64_t> awkward_numels() {
  std::vector<uint64_t> numels = awkward_sizes();
  numels.push_back(105);
  return numels;
}

TEST(SignSgd, TheMajorityOfTheRanksDecides) {
  for (const uint32_t ranks : {1u, 2u, 3u, 4u, 5u})
    for (const Distribution& distribution : distributions()) {
      CompressorRig rig({.ranks = ranks}, awkward_shapes(), signsgd());
      const RankTensors gradients = draw_gradients(distribution.draw, ranks, awkward_numels(), 0);
      const Tensors result = rig.step(gradients);
      for (uint64_t i = 0; i < result.size(); ++i)
        ASSERT_EQ(result[i], vote(gradients, i)) << distribution.name << " item " << i;
    }
}

TEST(SignSgd, SixteenMillionElementsEqualTheOracle) {
  // The vote of one rank.
  const SentOracle signs = each_element([](float x) { return static_cast<float>(sign(x)); });
  expect_large_gradients_equal({.plugin = signsgd(), .keeps = false}, signs);
}

TEST(SignSgd, ZerosDoNotVoteAndTiesAreZero) {
  CompressorRig rig({.ranks = 4}, {{5}}, signsgd());
  const RankTensors gradients = {
      {{1, 1, -0.0f, -3, 0}}, {{2, -1, 0, 0, 0}}, {{-9, 5, 0, 0, 1e-45f}}, {{-1, -7, 0, 0, 0}}};
  EXPECT_EQ(rig.step(gradients)[0], (std::vector<float>{0, 0, 0, -1, 1}));
}

TEST(SignSgd, RanksWithoutDataDoNotVote) {
  CompressorRig rig({.ranks = 3}, {{200}}, signsgd());
  const RankTensors gradients = draw_gradients(heavy_tailed, 3, {200}, 0);
  StepSettings settings;
  settings.joined = {1};
  EXPECT_EQ(rig.step(gradients, settings)[0], vote(gradients, 0, {1}));
  settings.joined = {0, 1, 2};
  EXPECT_EQ(rig.step(gradients, settings)[0], std::vector<float>(200, 0.0f));
}

TEST(SignSgd, SendsOneBitPerElementAndZerosByTheShorterOfListAndPlane) {
  const uint64_t n = 1000, words = 16;
  CompressorRig rig({.ranks = 1}, {{1000}}, signsgd());
  const PlannedNeed& need = rig.need(0);
  ASSERT_EQ(need.rounds.size(), 1u);
  EXPECT_EQ(need.rounds[0].c.combine, uint32_t{PENSTOCK_COMBINE_GATHER});
  EXPECT_EQ(need.rounds[0].c.result, uint32_t{PENSTOCK_RESULT_FINAL});
  EXPECT_EQ(need.rounds[0].c.flags, uint32_t{PENSTOCK_ROUND_ALL_PAYLOADS});
  const auto counts = [&](uint64_t zeros) {
    std::vector<float> values(n, 1.0f);
    for (uint64_t e = 0; e < zeros; ++e) values[e * 3] = 0;
    const PayloadPointer payload = encode_once(rig, values);
    return std::vector<uint64_t>{payload->section(0).count, payload->section(1).count,
                                 payload->section(2).count};
  };
  EXPECT_EQ(counts(0), (std::vector<uint64_t>{words, 0, 0}));
  EXPECT_EQ(counts(31), (std::vector<uint64_t>{words, 31, 0}));
  EXPECT_EQ(counts(32), (std::vector<uint64_t>{words, 0, words}));
}

TEST(SignSgd, WhereAMemoryKeepsTheSignIsTakenOut) {
  CompressorRig rig({.ranks = 2, .check_mass = true, .mass_tolerance = 1e-7, .keep = true},
                    {{300}, {1}, {64, 3}}, signsgd());
  const RankTensors gradients = draw_gradients(heavy_tailed, 2, {300, 1, 192}, 0);
  rig.step(gradients);  // the rig compares the subtracted values with the decoded payload
  for (uint64_t e = 0; e < 300; ++e)
    ASSERT_EQ(rig.sent(1, 0)[e], static_cast<float>(sign(gradients[1][0][e])));
}

TEST(SignSgd, AMemoryGetsBackWhatHadNoEffect) {
  CompressorRig rig({.ranks = 2}, {{100}}, signsgd(), {}, load_plugin("memory", "residual"));
  const RankTensors gradients = draw_gradients(heavy_tailed, 2, {100}, 0);
  StepSettings settings;
  settings.void_rank = 1;
  rig.step(gradients, settings);
  const std::vector<float> kept = rig.work(0, 0);
  for (uint64_t e = 0; e < 100; ++e)  // x - 1 + 1 in float
    ASSERT_NEAR(kept[e], gradients[0][0][e], 1e-6 * (1 + std::fabs(gradients[0][0][e])));
}

void set_zeros(OwnedPayload& payload, const std::vector<uint32_t>& zeros) {
  std::memcpy(payload.section(1).data, zeros.data(), zeros.size() * sizeof(uint32_t));
  payload.section(1).count = zeros.size();
}

TEST(SignSgd, AVoteIsOneInTrueUnitsWhateverTheLossScale) {
  for (const char* memory : {"none", "momentum"})
    for (const float scale : {1.0f, 1024.0f}) {
      CompressorRig rig({.ranks = 3}, {{4}}, signsgd(), {}, load_plugin("memory", memory));
      const Tensors gradient{{2 * scale, -3 * scale, 0, scale}};
      const Tensors vote = rig.step({gradient, gradient, gradient}, {.grad_scale = scale});
      EXPECT_EQ(vote[0], (std::vector<float>{1, -1, 0, 1})) << memory << ' ' << scale;
    }
}

TEST(SignSgd, PayloadsThatCannotBeAreRefusedByRankAndGradient) {
  CompressorRig rig({.ranks = 1}, {{640}}, signsgd());
  const auto refused = [&](const std::function<void(OwnedPayload&)>& change, const char* why) {
    expect_refused(rig, heavy_tailed(640, 1), change, why);
  };
  refused([](OwnedPayload& p) { p.section(0).count = 9; }, "expected 10");
  refused([](OwnedPayload& p) { p.section(0).count = 11; }, "at most 10");
  refused([](OwnedPayload& p) { p.section(1).count = UINT64_MAX; }, "at most 20");
  refused([](OwnedPayload& p) { p.section(2).count = 5; }, "expected none or 10");
  refused([](OwnedPayload& p) { set_zeros(p, {5, 640}); }, "zero at 640");
  refused([](OwnedPayload& p) { set_zeros(p, {UINT32_MAX}); }, "zero at 4294967295");
  refused([](OwnedPayload& p) { set_zeros(p, {7, 7}); }, "ascend");
  refused([](OwnedPayload& p) { set_zeros(p, {9, 7}); }, "ascend");
  refused(
      [](OwnedPayload& p) {
        set_zeros(p, {1});
        p.section(2).count = 10;
      },
      "both");
}

}  // namespace
}  // namespace penstock::test
