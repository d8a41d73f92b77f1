// The residual against plain loops, with compressors that send entries, round values or lose
// nothing.
#include <support/conservation.hpp>
#include <support/sparse_oracle.hpp>

namespace penstock::test {
namespace {

const std::vector<Shape> kShapes{{10, 16}, {0}, {1}, {31}};
const std::vector<uint64_t> kNumels{160, 0, 1, 31};

LoadedPlugin residual() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin compressor(const char* name) {
  return load_plugin("compressor", name);
}

RankTensors zeros(uint32_t ranks, const std::vector<uint64_t>& numels) {
  RankTensors all(ranks);
  for (auto& of_rank : all)
    for (const uint64_t numel : numels) of_rank.emplace_back(numel);
  return all;
}

TEST(Residual, EqualsTheOracleOver100StepsWithFactorsAndLossScale) {
  for (const Distribution& distribution : distributions())
    for (uint32_t ranks = 1; ranks <= 4; ++ranks)
      for (const auto& [beta, gamma] : {std::pair{1.0f, 1.0f}, std::pair{0.75f, 1.5f}}) {
        CompressorRig rig({.ranks = ranks, .check_mass = true}, kShapes, compressor("topk"),
                          {{"density", 0.05}, {"value_type", "fp32"}}, residual(),
                          {{"beta", double{beta}}, {"gamma", double{gamma}}});
        RankTensors kept = zeros(ranks, kNumels);
        for (uint64_t step = 0; step < 100; ++step) {
          const RankTensors gradients = draw_gradients(distribution.draw, ranks, kNumels, step);
          Tensors expected = zeros(1, kNumels)[0];
          for (uint64_t i = 0; i < kNumels.size(); ++i) {
            for (uint32_t r = 0; r < ranks; ++r) {
              std::vector<float>& work = kept[r][i];
              for (uint64_t e = 0; e < work.size(); ++e)
                work[e] = beta * work[e] + gamma * gradients[r][i][e];
              send(largest(work, kept_of(work.size(), 0.05)), work, expected[i]);
            }
            for (float& value : expected[i]) value /= static_cast<float>(ranks);
          }
          // A power of two scales exactly, except subnormal values.
          const double scale = distribution.name == "subnormal" || step % 2 == 0 ? 1 : 4096;
          ASSERT_EQ(rig.step(gradients, {.grad_scale = scale}), expected)
              << distribution.name << ", step " << step;
          for (uint32_t r = 0; r < ranks; ++r)
            for (uint64_t i = 0; i < kNumels.size(); ++i) ASSERT_EQ(rig.work(r, i), kept[r][i]);
        }
      }
}

TEST(Residual, PublishesItsForm) {
  CompressorRig rig({}, {{6}}, compressor("topk"), {}, residual(), {{"beta", 0.5}, {"gamma", 2}});
  const penstock_memory_need& need = rig.memory_need(0);
  EXPECT_EQ(need.form, uint32_t{PENSTOCK_FORM_AFFINE});
  EXPECT_EQ(need.work_is, uint32_t{PENSTOCK_WORK_IS_STATE});
  EXPECT_EQ(need.beta, 0.5);
  EXPECT_EQ(need.gamma, 2.0);
  EXPECT_EQ(need.n_scalars, 0u);
}

TEST(Residual, KeepsNothingWhereNothingIsLost) {
  CompressorRig rig({.ranks = 3}, kShapes, compressor("none"), {}, residual(), {{"gamma", 7}});
  EXPECT_EQ(rig.memory_need(0).n_states, 0u);
  EXPECT_EQ(rig.memory_need(0).work_is, uint32_t{PENSTOCK_WORK_IS_GRAD});
  const RankTensors gradients = draw_gradients(heavy_tailed, 3, kNumels, 0);
  for (const double scale : {1.0, 1024.0}) {
    const Tensors mean = rig.step(gradients, {.grad_scale = scale});
    for (uint64_t e = 0; e < kNumels[0]; ++e)
      EXPECT_EQ(mean[0][e], (gradients[0][0][e] + gradients[1][0][e] + gradients[2][0][e]) / 3);
  }
  EXPECT_EQ(rig.drain(0, 0), std::vector<float>(kNumels[0], 0.0f));
}

TEST(Residual, NothingIsLostOver100StepsOfEveryKind) {
  for (const char* name : {"topk", "fp16"})
    for (const Distribution& distribution : distributions()) {
      CompressorRig rig({.ranks = 3, .check_mass = true}, kShapes, compressor(name), {},
                        residual());
      expect_conservation(rig, distribution);
    }
}

TEST(Residual, AVoidStepLeavesTheRankWithBadGradientsUntouched) {
  CompressorRig rig({.ranks = 2}, {{4}}, compressor("topk"), {{"density", 0.25}}, residual());
  rig.step({{{1, 2, 3, 4}}, {{4, 3, 2, 1}}});
  const std::vector<float> before = rig.work(1, 0);
  const Tensors mean = rig.step({{{1, 1, 1, 9}}, {{0, 0, 0, 0}}}, {.void_rank = 1});
  for (const float value : mean[0]) EXPECT_TRUE(value != value) << "void results are NaN";
  EXPECT_EQ(rig.work(0, 0), (std::vector<float>{2, 3, 4, 9}));  // 1 2 3 0 and the new gradient
  EXPECT_EQ(rig.work(1, 0), before);
}

TEST(Residual, DrainHandsOverAllAndForgets) {
  CompressorRig rig({.ranks = 1}, {{4}}, compressor("topk"), {{"density", 0.25}}, residual());
  rig.step({{{1, -2, 3, 4}}});
  EXPECT_EQ(rig.drain(0, 0), (std::vector<float>{1, -2, 3, 0}));
  EXPECT_EQ(rig.drain(0, 0), (std::vector<float>(4, 0.0f)));
}

TEST(Residual, WhatIsGivenBackIsInput) {
  CompressorRig rig({.ranks = 1}, {{4}}, compressor("topk"), {{"density", 0.25}}, residual());
  rig.step({{{1, 2, 3, 4}}});
  const penstock_memory& table = residual().memory();
  const LoadedPlugin plugin = residual();
  const MemoryInstance memory(table, *plugin.module);
  const penstock_step step = rig.step_facts(0);
  const penstock_exec exec = rig.exec();
  const auto give_back = [&](OwnedPayload& payload) {
    penstock_item* item = rig.memory_item(0, 0);
    const penstock_payload* pointer = payload.c();
    return table.give_back(memory.self(), &exec, &step, &item, 1, &pointer);
  };
  const std::vector<float> before = rig.work(0, 0);
  EXPECT_TRUE(fails_with(give_back(*sparse_payload({1, 4}, {1, 1}, 0)), PENSTOCK_INVALID_PAYLOAD,
                         "index 4 at entry 1"));
  EXPECT_TRUE(fails_with(give_back(*dense_payload({1, 1, 1}, 0)), PENSTOCK_INVALID_PAYLOAD,
                         "has 3 elements"));
  EXPECT_EQ(rig.work(0, 0), before) << "a payload that was refused changed the residual";
  PENSTOCK_EXPECT_OK(give_back(*dense_payload({1, 1, 1, 1}, 0)));
  EXPECT_EQ(rig.work(0, 0), (std::vector<float>{2, 3, 4, 1}));
}

}  // namespace
}  // namespace penstock::test
