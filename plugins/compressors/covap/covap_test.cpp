// COVAP against plain loops over the slices that its README defines, and the properties that its
// error feedback rests on: every element is sent once in a round of slices, and no mass is lost.
#include <support/coded.hpp>
#include <support/conservation.hpp>
#include <support/summed_cases.hpp>

namespace penstock::test {
namespace {

const std::vector<uint64_t> kNumels{160, 0, 1, 2, 3, 31, 65, 1009};

LoadedPlugin covap() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin residual() {
  return load_plugin("memory", "residual");
}
OptionSettings every(int interval) {
  return {{"interval", interval}};
}
RankTensors ones(uint32_t ranks, const std::vector<uint64_t>& numels) {
  Tensors of_rank;
  for (const uint64_t n : numels) of_rank.emplace_back(n, 1.0f);
  return RankTensors(ranks, of_rank);
}

// The first elements of the slices of n elements.
std::vector<uint64_t> begins(uint64_t n, uint64_t interval) {
  uint64_t length = 1;
  while (length * interval < n) ++length;
  std::vector<uint64_t> found;
  for (uint64_t e = 0; e < n; ++e)
    if (e % length == 0) found.push_back(e);
  return found;
}

// The values of rank 0's next payload for item 0, which is written over old numbers.
std::vector<float> sent_over_old_numbers(CompressorRig& rig, const std::vector<float>& values) {
  const penstock_item* const item = rig.compressor_item(0, 0);
  std::copy(values.begin(), values.end(), static_cast<float*>(item->work.data));
  OwnedPayload payload(rig.need(0).rounds[0].sections, 0);
  auto* const sent = static_cast<float*>(payload.section(0).data);
  std::fill_n(sent, payload.section(0).capacity, 9.0f);
  penstock_payload* pointer = payload.c();
  const penstock_step step = rig.step_facts(0);
  const penstock_exec exec = rig.exec();
  const CompressorInstance& compressor = rig.compressor(0);
  PENSTOCK_EXPECT_OK(
      compressor.table().encode(compressor.self(), &exec, &step, 0, &item, 1, &pointer));
  return {sent, sent + payload.section(0).count};
}

// x where the slice of this step is, zeros elsewhere.
SentOracle slice_in_turn(uint64_t interval) {
  return [interval](const std::vector<float>& x, const Sender& sender) {
    std::vector<float> sent(x.size(), 0.0f);
    std::vector<uint64_t> begin = begins(x.size(), interval);
    if (begin.empty()) return sent;
    const uint64_t turn = (sender.step + sender.item) % begin.size();
    begin.push_back(x.size());
    for (uint64_t e = begin[turn]; e < begin[turn + 1]; ++e) sent[e] = x[e];
    return sent;
  };
}

TEST(Covap, EqualsTheOracleWithAResidual) {
  for (const Distribution& distribution : distributions())
    for (const uint32_t ranks : {1u, 2u, 3u, 4u, 8u})
      for (const int interval : {2, 3, 4, 1024}) {
        if ((ranks != 3 || interval != 3) && distribution.name != "student_t") continue;
        expect_equals({.plugin = covap(),
                       .options = every(interval),
                       .shapes = vectors(kNumels),
                       .rig = {.ranks = ranks,
                               .check_mass = true,
                               .mean_by_decode = ranks != 3},  // 1 / 3 is rounded
                       .steps = 10},
                      slice_in_turn(uint64_t(interval)), distribution);
      }
}

TEST(Covap, EqualsTheOracleWithoutAMemory) {
  for (const int interval : {1, 4})
    expect_equals({.plugin = covap(),
                   .options = every(interval),
                   .shapes = vectors(kNumels),
                   .rig = {.ranks = 3},
                   .steps = 9,
                   .keeps = false},
                  slice_in_turn(uint64_t(interval)), distributions()[0]);
}

TEST(Covap, SixteenMillionElementsEqualTheOracle) {
  expect_large_gradients_equal({.plugin = covap()}, slice_in_turn(4));
}

TEST(Covap, AnIntervalOfOneStepIsDenseToTheBit) {
  for (const uint32_t ranks : {1u, 2u, 3u, 4u}) {
    CompressorRig rig({.ranks = ranks}, vectors(kNumels), covap(), every(1), residual());
    CompressorRig dense({.ranks = ranks}, vectors(kNumels), load_plugin("compressor", "none"));
    for (uint64_t step = 0; step < 5; ++step) {
      const RankTensors gradients = draw_gradients(heavy_tailed, ranks, kNumels, step);
      ASSERT_EQ(rig.step(gradients), dense.step(gradients)) << ranks;
    }
    for (uint64_t i = 0; i < kNumels.size(); ++i)
      EXPECT_NE(rig.need(i).flags & PENSTOCK_NEED_LOSSLESS, 0u);
  }
}

TEST(Covap, EveryElementIsSentOnceInARoundOfSlices) {
  for (const uint64_t interval : {2, 3, 4, 7}) {
    const std::vector<uint64_t> numels{0, 1, 2, 5, 31, 160, 1009};
    CompressorRig rig({.ranks = 2}, vectors(numels), covap(), every(int(interval)));
    std::vector<std::vector<int>> last;  // the step that sent an element last
    for (const uint64_t n : numels) last.emplace_back(n, -1);
    for (int step = 0; step < 3 * int(interval); ++step) {
      const Tensors mean = rig.step(ones(2, numels));
      for (uint64_t i = 0; i < numels.size(); ++i) {
        const int round = int(begins(numels[i], interval).size());
        EXPECT_LE(round, int(interval));
        if (numels[i] >= interval * interval) {
          EXPECT_EQ(round, int(interval));
        }
        for (uint64_t e = 0; e < numels[i]; ++e) {
          ASSERT_TRUE(mean[i][e] == 0 || mean[i][e] == 1);
          if (mean[i][e] == 1) {
            if (last[i][e] >= 0) {
              ASSERT_EQ(step - last[i][e], round) << numels[i];
            }
            last[i][e] = step;
          }
          ASSERT_LT(step - last[i][e], round + 1) << numels[i] << " elements, element " << e;
        }
      }
    }
  }
}

TEST(Covap, EveryStepSendsEqualCountsAndTheShortLastSliceIsFilledWithZeros) {
  CompressorRig rig({.ranks = 2}, vectors({5, 4, 1, 0}), covap(), every(2));
  const uint64_t counts[] = {3, 2, 1, 0};
  const std::vector<float> first{1, 2, 3}, last{4, 5, 0};
  for (int step = 0; step < 4; ++step) {
    EXPECT_EQ(sent_over_old_numbers(rig, {1, 2, 3, 4, 5}), step % 2 == 0 ? first : last) << step;
    rig.step(ones(2, {5, 4, 1, 0}));
    for (uint64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(rig.sent_count(1, i), counts[i]);
      EXPECT_EQ(rig.need(i).rounds[0].sections[0].capacity, counts[i]);
    }
  }
}

TEST(Covap, NothingIsLostOver100StepsOfEveryKind) {
  for (const Distribution& distribution : distributions()) {
    CompressorRig rig({.ranks = 3, .check_mass = true}, vectors(kNumels), covap(), every(3),
                      residual());
    expect_conservation(rig, distribution);
  }
}

TEST(Covap, WhatARankSentAndWhatItKeepsAreItsGradients) {
  const int interval = 5, steps = 3 * interval;
  for (const uint32_t ranks : {1u, 2u, 3u, 4u}) {
    CompressorRig rig({.ranks = ranks}, vectors(kNumels), covap(), every(interval), residual());
    std::vector<std::vector<float>> arrived;
    for (const uint64_t n : kNumels) arrived.emplace_back(n, 0.0f);
    for (int step = 0; step < steps; ++step) {
      const Tensors mean = rig.step(ones(ranks, kNumels));
      for (uint64_t i = 0; i < kNumels.size(); ++i)
        for (uint64_t e = 0; e < kNumels[i]; ++e) arrived[i][e] += mean[i][e];
    }
    for (uint64_t i = 0; i < kNumels.size(); ++i)
      for (uint64_t e = 0; e < kNumels[i]; ++e)
        ASSERT_EQ(arrived[i][e] + rig.work(0, i)[e], float(steps)) << "sums of ones are exact";
  }
}

// Slices of one element: element 0 in step 0, element 1 in step 1, element 2 in step 2, and anew.
TEST(Covap, AResidualThatDecaysCountsOlderGradientsLess) {
  CompressorRig rig({.ranks = 1}, {{3}}, covap(), every(3), residual(), {{"beta", 0.5}});
  EXPECT_EQ(rig.step({{{1, 1, 1}}})[0], (std::vector<float>{1, 0, 0}));
  EXPECT_EQ(rig.step({{{1, 1, 1}}})[0], (std::vector<float>{0, 1 + 0.5f, 0}));
  EXPECT_EQ(rig.step({{{1, 1, 1}}})[0], (std::vector<float>{0, 0, 1 + 0.5f + 0.25f}));
  EXPECT_EQ(rig.step({{{1, 1, 1}}})[0], (std::vector<float>{1 + 0.5f + 0.25f, 0, 0}));
}

TEST(Covap, AForgottenStepSendsItsSliceAgain) {
  CompressorRig rig({.ranks = 2}, {{6}}, covap(), every(3), residual());
  rig.step(ones(2, {6}));
  const Tensors forgotten = rig.step(ones(2, {6}), {.forgotten = true});
  EXPECT_EQ(forgotten[0], (std::vector<float>{0, 0, 2, 2, 0, 0}));
  EXPECT_EQ(rig.step(ones(2, {6})), forgotten);
}

TEST(Covap, SumsAreInput) {
  expect_sums_are_input(covap(), {}, 10);
}

TEST(Covap, NeedsAMemoryUnlessEveryStepSendsAll) {
  for (const int interval : {1, 2}) {
    CompressorRig rig({.ranks = 1}, {{4}}, covap(), every(interval));
    penstock_compressor_traits traits{};
    traits.struct_size = sizeof traits;
    const auto& compressor = rig.compressor(0);
    PENSTOCK_EXPECT_OK(compressor.table().describe(compressor.self(), &traits));
    EXPECT_EQ((traits.flags & PENSTOCK_COMPRESSOR_NEEDS_MEMORY) != 0, interval == 2);
  }
}

}  // namespace
}  // namespace penstock::test
