// Top-k with a residual against full sorts in plain loops: equal to the bit over 100 steps.
#include <support/coded.hpp>
#include <support/compressor_cases.hpp>
#include <support/conservation.hpp>
#include <support/contraction.hpp>
#include <support/sparse_oracle.hpp>
#include <testing/checks.hpp>

namespace penstock::test {
namespace {

const std::vector<Shape> kShapes{{10, 16}, {0}, {1}, {31}, {7, 3, 3}};
const std::vector<uint64_t> kNumels{160, 0, 1, 31, 63};

LoadedPlugin topk() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin residual() {
  return load_plugin("memory", "residual");
}

// The k largest |x|.
SentOracle largest_of(double density, const std::string& value_type = "auto") {
  return [=](const std::vector<float>& x, const Sender&) {
    return only_as(value_type, x, largest(x, kept_of(x.size(), density)));
  };
}

// x = e + g. All gradients together send the number of entries that they would send separately; e =
// the rest. One step on all ranks; returns the mean.
Tensors step_across_bucket(RankTensors& kept, const RankTensors& gradients, double density) {
  Tensors total;
  for (const auto& of_item : kept[0]) total.emplace_back(of_item.size());
  for (size_t r = 0; r < kept.size(); ++r) {
    std::vector<float> bucket;
    uint64_t budget = 0;
    for (size_t i = 0; i < total.size(); ++i) {
      std::vector<float>& work = kept[r][i];
      for (size_t e = 0; e < work.size(); ++e) work[e] += gradients[r][i][e];
      budget += kept_of(work.size(), density);
      bucket.insert(bucket.end(), work.begin(), work.end());
    }
    for (const uint32_t position : largest(bucket, budget)) {
      size_t item = 0;
      uint64_t begins = 0;
      while (position - begins >= total[item].size()) begins += total[item++].size();
      send({static_cast<uint32_t>(position - begins)}, kept[r][item], total[item]);
    }
  }
  for (auto& of_item : total)
    for (float& value : of_item) value /= static_cast<float>(kept.size());
  return total;
}

void expect_equals_across_bucket(double density, const std::vector<Shape>& shapes,
                                 const std::vector<uint64_t>& numels, uint32_t ranks,
                                 uint64_t steps, const Distribution& distribution) {
  CompressorRig rig({.ranks = ranks, .ranks_per_slice = ranks / 2, .check_mass = true}, shapes,
                    topk(), {{"density", density}, {"scope", "bucket"}, {"value_type", "fp32"}},
                    residual());
  RankTensors kept(ranks);
  for (auto& of_rank : kept)
    for (const uint64_t numel : numels) of_rank.emplace_back(numel);
  for (uint64_t step = 0; step < steps; ++step) {
    const RankTensors gradients = draw_gradients(distribution.draw, ranks, numels, step);
    const Tensors expected = step_across_bucket(kept, gradients, density);
    ASSERT_EQ(rig.step(gradients), expected) << distribution.name << ", step " << step;
    for (uint32_t r = 0; r < ranks; ++r)
      for (uint64_t i = 0; i < numels.size(); ++i) ASSERT_EQ(rig.work(r, i), kept[r][i]);
  }
}

TEST(TopK, EqualsTheOracleOver100Steps) {
  for (const Distribution& distribution : distributions())
    for (uint32_t ranks = 1; ranks <= 4; ++ranks)
      expect_equals({.plugin = topk(),
                     .options = {{"density", 0.05}},
                     .shapes = kShapes,
                     .rig = {.ranks = ranks, .ranks_per_slice = ranks / 2, .check_mass = true},
                     .steps = 100},
                    largest_of(0.05), distribution);
}

TEST(TopK, ChosenAcrossTheBucketEqualsTheOracleOver100Steps) {
  for (const Distribution& distribution : distributions())
    for (uint32_t ranks = 1; ranks <= 4; ++ranks)
      expect_equals_across_bucket(0.05, kShapes, kNumels, ranks, 100, distribution);
}

TEST(TopK, AwkwardSizesEqualTheOracle) {
  for (const AwkwardInput& input : awkward_inputs())
    for (const double density : {0.001, 0.01, 0.3}) {
      const std::vector<Shape> shapes = vectors(input.sizes);
      expect_equals({.plugin = topk(),
                     .options = {{"density", density}},
                     .shapes = shapes,
                     .rig = {.ranks = 2, .check_mass = true},
                     .steps = 3},
                    largest_of(density), input.distribution);
      expect_equals_across_bucket(density, shapes, input.sizes, 2, 3, input.distribution);
    }
}

TEST(TopK, SixteenMillionElementsEqualTheOracle) {
  expect_large_gradients_equal({.plugin = topk()}, largest_of(0.01));
}

TEST(TopK, NothingIsLostOver100StepsOfEveryKind) {
  for (const char* scope : {"item", "bucket"})
    for (const Distribution& distribution : distributions()) {
      CompressorRig rig({.ranks = 3, .check_mass = true}, kShapes, topk(),
                        {{"density", 0.1}, {"scope", scope}}, residual());
      expect_conservation(rig, distribution);
    }
}

TEST(TopK, DensityOneIsTheDenseMean) {
  for (const char* scope : {"item", "bucket"}) {
    CompressorRig rig({.ranks = 3}, kShapes, topk(), {{"density", 1}, {"scope", scope}},
                      residual());
    for (uint64_t step = 0; step < 3; ++step) {
      const RankTensors gradients = draw_gradients(heavy_tailed, 3, kNumels, step);
      const Tensors mean = rig.step(gradients);
      for (uint64_t i = 0; i < kNumels.size(); ++i)
        for (uint64_t e = 0; e < kNumels[i]; ++e)
          ASSERT_EQ(mean[i][e], (gradients[0][i][e] + gradients[1][i][e] + gradients[2][i][e]) / 3);
    }
  }
}

TEST(TopK, KeepsAtLeastOneAndRoundsSharesUp) {
  const std::vector<std::pair<int64_t, uint64_t>> expected{
      {0, 0}, {1, 1}, {99, 1}, {100, 1}, {101, 2}, {700, 7}, {701, 8}, {70000, 700}};
  for (const auto& [numel, k] : expected) {
    CompressorRig rig({.ranks = 1}, {{numel}}, topk());
    EXPECT_EQ(rig.need(0).rounds[0].sections[0].capacity, k) << numel;
  }
}

TEST(TopK, WithoutAMemoryWorkIsLeftAlone) {
  CompressorRig rig({.ranks = 2}, {{5}}, topk(), {{"density", 0.4}});
  EXPECT_EQ(rig.step({{{3, -7, 1, 0.5, 2}}, {{0, 1, 0, 0, 4}}}), (Tensors{{1.5, -3, 0, 0, 2}}));
}

TEST(TopK, PayloadsAreInput) {
  CompressorRig rig({.ranks = 2}, {{16}}, topk(), {{"density", 0.5}});
  expect_sparse_payloads_are_input(rig);
}

TEST(TopK, EveryValueTypeEqualsTheOracleOver100Steps) {
  for (const auto& [type, tolerance] :
       {std::pair{"fp16", 0.0}, {"bf16", 0.0}, {"int8", 0.0}, {"sign", 0x1p-23}})
    for (const Distribution& distribution : distributions())
      expect_equals({.plugin = topk(),
                     .options = {{"density", 0.05}, {"value_type", type}},
                     .shapes = kShapes,
                     .rig = {.ranks = 3,
                             .ranks_per_slice = 2,
                             .check_mass = true,
                             .mass_tolerance = tolerance},
                     .steps = 100},
                    largest_of(0.05, type), distribution);
}

TEST(TopK, NarrowValuesLoseNothing) {
  for (const char* type : {"fp16", "bf16", "int8"})
    for (const char* scope : {"item", "bucket"})
      for (const Distribution& distribution : distributions()) {
        CompressorRig rig({.ranks = 2, .check_mass = true}, {{10, 16}, {0}, {31}}, topk(),
                          {{"density", 0.1}, {"scope", scope}, {"value_type", type}}, residual());
        expect_conservation(rig, distribution);
      }
}

TEST(TopK, WhatHalvesRoundOffStaysInTheResidual) {
  CompressorRig rig({.ranks = 2}, {{3}}, topk(), {{"density", 1}, {"value_type", "fp16"}},
                    residual());
  // The power of two is 2^5: codes 31250, -2187.5 and 1/32, rounded to 31248 and -2188.
  EXPECT_EQ(rig.step({{{1e6f, -7e4f, 1}}, {{0, 0, 0}}}), (Tensors{{499968, -35008, 0.5}}));
  EXPECT_EQ(rig.work(0, 0), (std::vector<float>{64, 16, 0}));
}

TEST(TopK, HalvesAreTheDefaultIfAMemoryKeepsTheirRounding) {
  const auto dtype = [](const CompressorRig& rig, uint64_t item) {
    return rig.need(item).rounds[0].sections[1].dtype;
  };
  const OptionSettings tenth{{"density", 0.1}};
  CompressorRig kept({.ranks = 2}, {{1000}, {79}, {71}}, topk(), tenth, residual());
  EXPECT_EQ(dtype(kept, 0), uint32_t{PENSTOCK_FLOAT16});
  EXPECT_EQ(dtype(kept, 1), uint32_t{PENSTOCK_FLOAT16}) << "8 entries";
  EXPECT_EQ(dtype(kept, 2), uint32_t{PENSTOCK_FLOAT16}) << "8 entries";
  CompressorRig few({.ranks = 2}, {{70}, {1}, {0}}, topk(), tenth, residual());
  for (uint64_t i = 0; i < 3; ++i)
    EXPECT_EQ(dtype(few, i), uint32_t{PENSTOCK_FLOAT32}) << "a scale would take more than it saves";
  CompressorRig lost({.ranks = 2}, {{1000}}, topk(), tenth);
  EXPECT_EQ(dtype(lost, 0), uint32_t{PENSTOCK_FLOAT32}) << "nothing keeps the rounding";
  CompressorRig all({.ranks = 2}, {{1000}}, topk(), {{"density", 1}}, residual());
  EXPECT_EQ(dtype(all, 0), uint32_t{PENSTOCK_FLOAT32}) << "everything goes";
  CompressorRig of_bucket({.ranks = 2}, {{1000}}, topk(), {{"density", 0.1}, {"scope", "bucket"}},
                          residual());
  EXPECT_EQ(dtype(of_bucket, 0), uint32_t{PENSTOCK_FLOAT16});
  CompressorRig named({.ranks = 2}, {{1000}}, topk(), {{"density", 0.1}, {"value_type", "fp32"}},
                      residual());
  EXPECT_EQ(dtype(named, 0), uint32_t{PENSTOCK_FLOAT32});
}

TEST(TopK, GradientsOfAnyScaleArriveAlike) {
  for (const char* scope : {"item", "bucket"})
    for (const char* type : {"auto", "fp16", "bf16", "fp32"})
      expect_any_scale_arrives_alike(topk(),
                                     {{"density", 0.1}, {"scope", scope}, {"value_type", type}});
}

TEST(TopK, NarrowPayloadsAreInput) {
  for (const char* type : {"fp16", "bf16", "int8"}) {
    CompressorRig rig({.ranks = 2}, {{16}}, topk(), {{"density", 0.5}, {"value_type", type}});
    expect_narrow_payloads_are_input(rig);
  }
}

// Signs: mean +4 and mean -2. The rest stays, and what rank 1 has not sent is nothing.
TEST(TopK, SignsTravelWithTwoMeansAndTheRestStays) {
  CompressorRig rig({.ranks = 2}, {{5}}, topk(), {{"density", 0.8}, {"value_type", "sign"}},
                    residual());
  const std::vector<float> zeros(5);
  EXPECT_EQ(rig.step({{{5, -1, 0.5, 3, -3}}, {zeros}}), (Tensors{{2, -1, 0, 2, -1}}));
  EXPECT_EQ(rig.work(0, 0), (std::vector<float>{1, 1, 0.5, -1, -1}));
  EXPECT_EQ(rig.sent_count(0, 0), 4u);
  EXPECT_EQ(rig.sent_count(1, 0), 0u) << "zero has no sign";
  EXPECT_EQ(rig.work(1, 0), zeros);
}

TEST(TopK, EntriesOfOneSignNeedNoSecondMeanAndZerosAreLeftOut) {
  CompressorRig rig({.ranks = 1}, {{3}}, topk(), {{"density", 1}, {"value_type", "sign"}},
                    residual());
  EXPECT_EQ(rig.step({{{-1, -2, -3}}}), (Tensors{{-2, -2, -2}}));
  EXPECT_EQ(rig.work(0, 0), (std::vector<float>{1, 0, -1}));
  EXPECT_EQ(rig.step({{{0, 0, 0}}}), (Tensors{{1, 0, -1}}));
  EXPECT_EQ(rig.sent_count(0, 0), 2u);
}

TEST(TopK, SignsAreABitForEachIndexInTheirOrder) {
  CompressorRig rig({.ranks = 1}, {{200}}, topk(), {{"density", 0.5}, {"value_type", "sign"}},
                    residual());
  std::vector<float> x(200);
  for (uint64_t e = 0; e < 70; ++e) x[2 * e + 1] = e % 3 == 0 ? -1.0f : 2.0f;
  const PayloadPointer payload = encode_once(rig, x);
  ASSERT_EQ(payload->n_sections(), 3u);
  EXPECT_EQ(payload->section(0).count, 70u) << "100 are chosen, among them 30 zeros";
  EXPECT_EQ(payload->section(1).count, 2u);
  ASSERT_EQ(payload->section(2).count, 2u);
  for (uint64_t e = 0; e < 70; ++e) {
    EXPECT_EQ(entry<uint32_t>(*payload, 0, e), 2 * e + 1);
    EXPECT_EQ(entry<uint64_t>(*payload, 1, e / 64) >> e % 64 & 1, e % 3 == 0 ? 1u : 0u);
  }
  EXPECT_EQ(entry<uint64_t>(*payload, 1, 1) >> 6, 0u) << "bits behind the last";
  EXPECT_EQ(entry<float>(*payload, 2, 0), 2.0f);
  EXPECT_EQ(entry<float>(*payload, 2, 1), 1.0f);
}

TEST(TopK, SignsLoseNothing) {
  for (const char* scope : {"item", "bucket"})
    for (const Distribution& distribution : distributions())
      for (uint32_t ranks = 1; ranks <= 4; ++ranks) {
        CompressorRig rig({.ranks = ranks, .check_mass = true, .mass_tolerance = 0x1p-23},
                          {{10, 16}, {0}, {1}, {31}}, topk(),
                          {{"density", 0.1}, {"scope", scope}, {"value_type", "sign"}}, residual());
        expect_conservation(rig, distribution, 50, KeptSize::kByLargest);
      }
}

TEST(TopK, SignsAtAwkwardSizesEqualTheOracle) {
  for (const AwkwardInput& input : awkward_inputs())
    for (const double density : {0.01, 1.0})
      expect_equals({.plugin = topk(),
                     .options = {{"density", density}, {"value_type", "sign"}},
                     .shapes = vectors(input.sizes),
                     .rig = {.ranks = 2, .check_mass = true, .mass_tolerance = 0x1p-23},
                     .steps = 2},
                    largest_of(density, "sign"), input.distribution);
}

TEST(TopK, SignsAreAProjectionOfTheChosenEntries) {
  expect_contraction({.plugin = topk(),
                      .options = {{"density", 0.1}, {"value_type", "sign"}},
                      .shapes = kShapes,
                      .share = no_share,
                      .rounding = 1e-6,
                      .projects = true});
}

TEST(TopK, SignsNeedAMemoryThatKeepsAndTheCpu) {
  const auto traits = [](const char* type) {
    return CompressorInstance(topk(), {{"value_type", type}}).describe();
  };
  EXPECT_EQ(traits("sign").flags & PENSTOCK_COMPRESSOR_NEEDS_KEPT_MASS,
            uint32_t{PENSTOCK_COMPRESSOR_NEEDS_KEPT_MASS});
  EXPECT_EQ(traits("sign").device_types, uint64_t{1} << PENSTOCK_DEVICE_CPU);
  EXPECT_EQ(traits("fp16").flags & PENSTOCK_COMPRESSOR_NEEDS_KEPT_MASS, 0u);
}

TEST(TopK, SignsKeepTheRulesOfEveryCompressor) {
  EXPECT_NO_THROW(run_checks(topk(), {{"value_type", "sign"}}));
}

TEST(TopK, SignPayloadsAreInput) {
  CompressorRig rig({.ranks = 2}, {{16}}, topk(), {{"density", 0.5}, {"value_type", "sign"}},
                    residual());
  expect_sign_payloads_are_input(rig);
}

TEST(TopK, CompensatingInTheSameSweepChangesNoBit) {
  for (const char* scope : {"item", "bucket"})
    expect_folding_changes_no_bit(topk(), {{"density", 0.1}, {"scope", scope}}, kShapes);
  expect_folding_changes_no_bit(topk(), {{"density", 0.1}, {"value_type", "sign"}}, kShapes,
                                0x1p-23);
}

TEST(TopK, RefusesMoreEntriesThanIndicesCanName) {
  expect_huge_gradients_are_refused(topk());
}

TEST(TopK, EveryCodePathSendsTheSame) {
  for (const char* type : {"auto", "sign"})
    expect_one_result_wherever_it_runs(topk(), {{"value_type", type}});
}

TEST(TopK, LeavesAtMostTheShareThatWasNotChosen) {
  for (const double density : {0.001, 0.05, 0.5})
    expect_contraction({.plugin = topk(),
                        .options = {{"density", density}},
                        .shapes = kShapes,
                        .share = share_of_the_largest(density),
                        .rounding = 1e-6});
}

}  // namespace
}  // namespace penstock::test
