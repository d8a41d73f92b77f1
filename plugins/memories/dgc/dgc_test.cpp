// The memory of Deep Gradient Compression against the paper's equations in plain loops.
#include <algorithm>
#include <cmath>
#include <limits>
#include <support/conservation.hpp>
#include <support/sparse_oracle.hpp>

namespace penstock::test {
namespace {

const std::vector<Shape> kShapes{{10, 16}, {0}, {1}, {31}};
const std::vector<uint64_t> kNumels{160, 0, 1, 31};

LoadedPlugin memory() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin compressor(const char* name) {
  return load_plugin("compressor", name);
}

struct Setting {
  bool nesterov = false;
  bool masking = true;
  const char* clipping = "none";
  double clip = 1;
};

OptionSettings options(const Setting& setting) {
  return {{"nesterov", setting.nesterov},
          {"momentum_masking", setting.masking},
          {"clipping", setting.clipping},
          {"clip", setting.clip}};
}

double square_norm(const std::vector<float>& x) {
  long double sum = 0;
  for (const float value : x) sum += static_cast<long double>(value) * value;
  return static_cast<double>(sum);
}

// g clipped by its own norm, or by `global`, the root mean square of the ranks' norms.
std::vector<float> clipped(const std::vector<float>& g, const Setting& setting, double global) {
  const std::string kind = setting.clipping;
  const double norm = kind.find("global") != std::string::npos ? global : std::sqrt(square_norm(g));
  float factor = 1;
  float bound = std::numeric_limits<float>::infinity();
  if (kind.find("norm") == 0)
    factor = static_cast<float>(std::min(1.0, setting.clip / (norm + 1e-6)));
  if (kind == "value") bound = static_cast<float>(setting.clip);
  if (kind == "value_global") bound = static_cast<float>(setting.clip * norm);
  std::vector<float> result;
  for (const float value : g) result.push_back(std::min(std::max(value * factor, -bound), bound));
  return result;
}

double global_norm(const RankTensors& gradients, uint64_t item) {
  float sum = 0;  // measured numbers travel as float32
  for (const auto& of_rank : gradients) sum += static_cast<float>(square_norm(of_rank[item]));
  return std::sqrt(double{sum} / static_cast<double>(gradients.size()));
}

struct Oracle {
  RankTensors u, v;
  Oracle(uint32_t ranks, const std::vector<uint64_t>& numels) : u(ranks), v(ranks) {
    for (uint32_t r = 0; r < ranks; ++r)
      for (const uint64_t numel : numels) {
        u[r].emplace_back(numel);
        v[r].emplace_back(numel);
      }
  }
  // u = m u + g, v = v + u; or u = m (u + g), v = v + u + g.
  void add(uint64_t r, uint64_t i, const std::vector<float>& g, bool nesterov) {
    for (uint64_t e = 0; e < g.size(); ++e) {
      float& momentum = u[r][i][e];
      float& velocity = v[r][i][e];
      momentum = nesterov ? 0.9f * (momentum + g[e]) : 0.9f * momentum + g[e];
      velocity = velocity + momentum;
      if (nesterov) velocity = velocity + g[e];
    }
  }
  // The k largest entries of v are sent.
  Tensors step(const RankTensors& gradients, const Setting& setting, double density) {
    Tensors total;
    for (uint64_t i = 0; i < v[0].size(); ++i) {
      total.emplace_back(v[0][i].size());
      for (uint64_t r = 0; r < v.size(); ++r) {
        const std::vector<float> g = clipped(gradients[r][i], setting, global_norm(gradients, i));
        add(r, i, g, setting.nesterov);
        const std::vector<uint32_t> chosen = largest(v[r][i], kept_of(g.size(), density));
        send(chosen, v[r][i], total[i]);
        if (setting.masking)
          for (const uint32_t e : chosen) u[r][i][e] = 0;
      }
      for (float& value : total[i]) value /= static_cast<float>(v.size());
    }
    return total;
  }
};

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const bool nesterov : {false, true})
    for (const bool masking : {false, true}) all.push_back({nesterov, masking});
  for (const char* clipping : {"norm", "norm_global", "value", "value_global"})
    for (const bool nesterov : {false, true}) all.push_back({nesterov, true, clipping, 0.1});
  return all;
}

void expect_equals_oracle(const Setting& setting, const Distribution& distribution, uint32_t ranks,
                          uint64_t steps) {
  CompressorRig rig({.ranks = ranks, .check_mass = true}, kShapes, compressor("topk"),
                    {{"density", 0.05}, {"value_type", "fp32"}}, memory(), options(setting));
  Oracle oracle(ranks, kNumels);
  for (uint64_t step = 0; step < steps; ++step) {
    const RankTensors gradients = draw_gradients(distribution.draw, ranks, kNumels, step);
    const Tensors expected = oracle.step(gradients, setting, 0.05);
    const double scale = distribution.name == "subnormal" || step % 2 == 0 ? 1 : 4096;
    ASSERT_EQ(rig.step(gradients, {.grad_scale = scale}), expected)
        << distribution.name << ", step " << step << ", clipping " << setting.clipping;
    for (uint32_t r = 0; r < ranks; ++r)
      for (uint64_t i = 0; i < kNumels.size(); ++i) {
        ASSERT_EQ(rig.work(r, i), oracle.v[r][i]);
        ASSERT_EQ(rig.memory_state(r, i, "momentum"), oracle.u[r][i]);
      }
  }
}

TEST(DgcMemory, EqualsTheOracleOver100Steps) {
  for (const Distribution& distribution : distributions())
    for (uint32_t ranks = 1; ranks <= 4; ++ranks)
      expect_equals_oracle({}, distribution, ranks, 100);
}

TEST(DgcMemory, EveryOptionEqualsTheOracle) {
  for (const Setting& setting : settings())
    for (const Distribution& distribution : distributions())
      expect_equals_oracle(setting, distribution, 3, 20);
}

TEST(DgcMemory, DensityOneWithMaskingIsPlainSgd) {
  CompressorRig rig({.ranks = 3}, kShapes, compressor("topk"), {{"density", 1}}, memory());
  for (uint64_t step = 0; step < 5; ++step) {
    const RankTensors gradients = draw_gradients(heavy_tailed, 3, kNumels, step);
    const Tensors mean = rig.step(gradients);
    for (uint64_t e = 0; e < kNumels[0]; ++e)
      ASSERT_EQ(mean[0][e], (gradients[0][0][e] + gradients[1][0][e] + gradients[2][0][e]) / 3);
  }
}

TEST(DgcMemory, DensityOneWithoutMaskingIsMomentumAfterAveraging) {
  for (const bool nesterov : {false, true}) {
    const OptionSettings how{{"momentum_masking", false}, {"nesterov", nesterov}};
    CompressorRig sparse({.ranks = 3}, kShapes, compressor("topk"), {{"density", 1}}, memory(),
                         how);
    CompressorRig dense({.ranks = 3}, kShapes, compressor("none"), {}, memory(), how);
    for (uint64_t step = 0; step < 30; ++step) {
      const RankTensors gradients = draw_gradients(heavy_tailed, 3, kNumels, step);
      const Tensors one = sparse.step(gradients);
      const Tensors other = dense.step(gradients);
      // Equal sums in another order; they have terms up to about 200 and 30 roundings.
      for (uint64_t e = 0; e < kNumels[0]; ++e) ASSERT_NEAR(one[0][e], other[0][e], 1e-3);
    }
  }
}

TEST(DgcMemory, GradientsSentWholeGetMomentumOnTheMean) {
  for (const Setting& setting : settings())
    for (uint32_t ranks = 1; ranks <= 4; ++ranks) {
      CompressorRig rig({.ranks = ranks}, kShapes, compressor("none"), {}, memory(),
                        options(setting));
      EXPECT_EQ(rig.memory_need(0).work_is, uint32_t{PENSTOCK_WORK_IS_GRAD});
      Tensors u;
      for (const uint64_t numel : kNumels) u.emplace_back(numel);
      for (uint64_t step = 0; step < 20; ++step) {
        const RankTensors gradients = draw_gradients(heavy_tailed, ranks, kNumels, step);
        const double scale = step % 2 == 0 ? 1 : 256;
        const Tensors result = rig.step(gradients, {.grad_scale = scale});
        for (uint64_t i = 0; i < kNumels.size(); ++i) {
          std::vector<float> mean(kNumels[i]);
          for (uint64_t e = 0; e < mean.size(); ++e) {
            for (uint32_t r = 0; r < ranks; ++r) mean[e] += gradients[r][i][e];
            mean[e] /= static_cast<float>(ranks);
          }
          const std::vector<float> g = clipped(mean, setting, std::sqrt(square_norm(mean)));
          for (uint64_t e = 0; e < g.size(); ++e) {
            u[i][e] = setting.nesterov ? 0.9f * (u[i][e] + g[e]) : 0.9f * u[i][e] + g[e];
            ASSERT_EQ(result[i][e], setting.nesterov ? u[i][e] + g[e] : u[i][e])
                << setting.clipping << ", step " << step;
          }
          for (uint32_t r = 0; r < ranks; ++r) ASSERT_EQ(rig.memory_state(r, i, "momentum"), u[i]);
        }
      }
    }
}

TEST(DgcMemory, NothingIsLostOver100StepsOfEveryKind) {
  for (const char* name : {"topk", "dgc", "fp16"})
    for (const Distribution& distribution : distributions()) {
      CompressorRig rig({.ranks = 3, .check_mass = true}, kShapes, compressor(name), {}, memory(),
                        {{"momentum", 0}});
      expect_conservation(rig, distribution);
    }
}

TEST(DgcMemory, MaskingForgetsOnlyWhatWasTaken) {
  CompressorRig rig({.ranks = 1}, {{4}}, compressor("topk"), {{"density", 0.5}}, memory());
  StepSettings refuse_first;
  refuse_first.refuse = [](uint32_t, uint64_t, uint64_t entry) { return entry == 0; };
  rig.step({{{1, 5, 2, 6}}}, refuse_first);
  EXPECT_EQ(rig.memory_state(0, 0, "momentum"), (std::vector<float>{1, 5, 2, 0}));
  EXPECT_EQ(rig.work(0, 0), (std::vector<float>{1, 5, 2, 0}));
}

TEST(DgcMemory, MaskingForgetsWhatWasTakenAsSigns) {
  CompressorRig rig({.ranks = 1}, {{4}}, compressor("topk"),
                    {{"density", 0.5}, {"value_type", "sign"}}, memory());
  EXPECT_EQ(rig.step({{{1, 5, 2, 6}}}), (Tensors{{0, 5.5, 0, 5.5}}));
  EXPECT_EQ(rig.memory_state(0, 0, "momentum"), (std::vector<float>{1, 0, 2, 0}));
  EXPECT_EQ(rig.work(0, 0), (std::vector<float>{1, -0.5, 2, 0.5}));
}

// Few entries and many, pairs whose values are rounded, and payloads of all entries.
TEST(DgcMemory, AVoidStepMasksNothing) {
  struct Case {
    const char* compressor;
    OptionSettings options;
    double tolerance;  // of the velocity, whose rounded part comes back by itself
  };
  const std::vector<Case> cases{{"topk", {{"density", 0.05}}, 0},
                                {"topk", {{"density", 0.5}}, 0},
                                {"topk", {{"density", 0.02}, {"scope", "bucket"}}, 0},
                                {"topk", {{"density", 0.05}, {"value_type", "fp16"}}, 1e-5},
                                {"topk", {{"density", 0.05}, {"value_type", "sign"}}, 1e-5},
                                {"adtopk", {{"density", 0.05}}, 0},
                                {"fp16", {}, 1e-5}};
  for (const Case& c : cases)
    for (const bool nesterov : {false, true}) {
      const Setting setting{nesterov, true};
      CompressorRig rig({.ranks = 2}, kShapes, compressor(c.compressor), c.options, memory(),
                        options(setting));
      Oracle oracle(2, kNumels);
      const auto in_vain = [&](uint64_t step, const StepSettings& how) {
        const RankTensors gradients = draw_gradients(heavy_tailed, 2, kNumels, step);
        rig.step(gradients, how);
        for (uint64_t i = 0; i < kNumels.size(); ++i) {
          oracle.add(0, i, gradients[0][i], nesterov);  // and nothing is sent
          ASSERT_EQ(rig.memory_state(0, i, "momentum"), oracle.u[0][i]) << c.compressor;
          const std::vector<float> kept = rig.work(0, i);
          for (uint64_t e = 0; e < kept.size(); ++e)
            ASSERT_NEAR(kept[e], oracle.v[0][i][e], c.tolerance * (1 + std::abs(oracle.v[0][i][e])))
                << c.compressor << ", item " << i;
        }
      };
      for (uint64_t step = 0; step < 3; ++step) in_vain(step, {.void_rank = 1});
      // Momentum that a step has masked for good does not come back with a later void step.
      rig.step(draw_gradients(heavy_tailed, 2, kNumels, 3));
      for (uint64_t i = 0; i < kNumels.size(); ++i) {
        oracle.u[0][i] = rig.memory_state(0, i, "momentum");
        oracle.v[0][i] = rig.work(0, i);
      }
      in_vain(4, {.void_rank = 1});
      in_vain(5, {.void_rank = 1,
                  .refuse = [](uint32_t, uint64_t, uint64_t entry) { return entry % 2 == 0; }});
    }
}

TEST(DgcMemory, OfAGradientSentWholeAVoidStepLeavesNothing) {
  for (const bool nesterov : {false, true}) {
    const OptionSettings how{{"nesterov", nesterov}};
    CompressorRig rig({.ranks = 2}, kShapes, compressor("none"), {}, memory(), how);
    CompressorRig other({.ranks = 2}, kShapes, compressor("none"), {}, memory(), how);
    for (uint64_t step = 0; step < 6; ++step) {
      const RankTensors gradients = draw_gradients(heavy_tailed, 2, kNumels, step);
      ASSERT_EQ(rig.step(gradients), other.step(gradients)) << "step " << step;
      const RankTensors lost = draw_gradients(heavy_tailed, 2, kNumels, 100 + step);
      rig.step(lost, {.void_rank = static_cast<uint32_t>(step % 2)});
    }
  }
}

TEST(DgcMemory, KeepsMomentumAndVelocityAndNothingBeside) {
  const auto states = [](const char* name, const Setting& setting) {
    return CompressorRig({}, {{6}}, compressor(name), {}, memory(), options(setting))
        .memory_need(0)
        .n_states;
  };
  EXPECT_EQ(states("topk", {}), 2u);
  EXPECT_EQ(states("none", {}), 1u);
  EXPECT_EQ(states("topk", {false, true, "norm"}), 3u) << "where a device adds up the norm";
}

TEST(DgcMemory, PublishesItsFormUnlessItClips) {
  const auto need = [&](const Setting& setting) {
    return CompressorRig({}, {{6}}, compressor("topk"), {}, memory(), options(setting))
        .memory_need(0);
  };
  EXPECT_EQ(need({}).form, uint32_t{PENSTOCK_FORM_HEAVY_BALL});
  EXPECT_EQ(need({true}).form, uint32_t{PENSTOCK_FORM_NESTEROV});
  EXPECT_EQ(need({}).beta, 0.9);
  EXPECT_EQ(need({}).flags, uint32_t{PENSTOCK_MEMORY_OWNS_MOMENTUM});
  EXPECT_EQ(need({}).n_scalars, 0u);
  EXPECT_EQ(need({false, true, "norm"}).form, uint32_t{PENSTOCK_FORM_NONE});
  EXPECT_EQ(need({false, true, "norm_global"}).n_scalars, 1u);
}

TEST(DgcMemory, DrainHandsOverTheVelocityAndEndsTheMomentum) {
  CompressorRig rig({.ranks = 1}, {{4}}, compressor("topk"), {{"density", 0.25}}, memory());
  rig.step({{{1, -2, 3, 4}}});
  EXPECT_EQ(rig.drain(0, 0), (std::vector<float>{1, -2, 3, 0}));
  EXPECT_EQ(rig.drain(0, 0), (std::vector<float>(4, 0.0f)));
  EXPECT_EQ(rig.memory_state(0, 0, "momentum"), (std::vector<float>(4, 0.0f)));
}

TEST(DgcMemory, WhatIsRecordedIsInput) {
  CompressorRig rig({.ranks = 1}, {{4}}, compressor("topk"), {{"density", 0.25}}, memory());
  rig.step({{{1, 2, 3, 4}}});
  const LoadedPlugin plugin = memory();
  const MemoryInstance instance(plugin.memory(), *plugin.module);
  const penstock_step step = rig.step_facts(0);
  const penstock_exec exec = rig.exec();
  penstock_item* item = rig.memory_item(0, 0);
  const PayloadPointer payload = sparse_payload({0, 9}, {1, 1}, 0);
  const penstock_payload* pointer = payload->c();
  EXPECT_TRUE(fails_with(instance.table().record(instance.self(), &exec, &step, &item, 1, &pointer),
                         PENSTOCK_INVALID_PAYLOAD, "index 9"));
  EXPECT_EQ(rig.memory_state(0, 0, "momentum"), (std::vector<float>{1, 2, 3, 0}));
}

}  // namespace
}  // namespace penstock::test
