// Sparse methods on a device, compared with the CPU. Equal entries are sent in every type of
// values, with equal bits, and the rests are equal.
#include "ranks.hpp"

namespace penstock::simulated::pairs_test {

class PairsOnADevice : public WellUsedDevice {};

const char* const kValueTypes[] = {"fp32", "fp16", "bf16", "int8"};

// The encode also compensates.
Case folded(int64_t n, uint32_t ranks = 2) {
  return {.shape = {n}, .ranks = ranks, .form = PENSTOCK_FORM_AFFINE};
}

TEST_F(PairsOnADevice, OfTopKHaveTheBitsOfTheCpuInEveryTypeOfValues) {
  for (const char* type : kValueTypes)
    for (const int64_t n : kAwkwardSizes)
      expect_the_bits_of_the_cpu({"topk", {{"density", 0.05}, {"value_type", type}}}, folded(n));
}

TEST_F(PairsOnADevice, AboveAThresholdHaveTheBitsOfTheCpuInEveryTypeOfValues) {
  for (const char* type : kValueTypes)
    for (const int64_t n : kAwkwardSizes)
      expect_the_bits_of_the_cpu({"threshold", {{"threshold", 4.0}, {"value_type", type}}},
                                 folded(n));
}

TEST_F(PairsOnADevice, AboveAThresholdAreTheLargestWhereMoreReachItThanThereIsRoomFor) {
  for (const int64_t n : std::vector<int64_t>{31, 1000, kLargeSize})
    expect_the_bits_of_the_cpu({"threshold", {{"threshold", 0.01}, {"capacity", 0.02}}}, folded(n));
}

TEST_F(PairsOnADevice, AboveAThresholdMayBeNone) {
  const Compressor threshold({"threshold", {{"threshold", 1e30}}});
  Ranks rank(threshold, folded(1000, 1), true);
  const Sent sent = rank[0].send();
  EXPECT_EQ(sent.sections[0].count, 0u);
  EXPECT_EQ(sent.kind, uint32_t{PENSTOCK_PAYLOAD_SPARSE});
  EXPECT_EQ(rank[0].receive({sent}).message, "");
  EXPECT_EQ(rank[0].floats("gradient"), std::vector<float>(1000));
}

TEST_F(PairsOnADevice, HaveTheBitsOfTheCpuOnAnyNumberOfRanks) {
  for (const char* type : kValueTypes)
    for (const uint32_t ranks : {1u, 3u})
      for (const std::set<uint32_t>& absent :
           {std::set<uint32_t>{0}, std::set<uint32_t>{ranks - 1}, std::set<uint32_t>{}}) {
        Case of = folded(500, ranks);
        of.absent = absent;
        expect_the_bits_of_the_cpu({"threshold", {{"threshold", 3.0}, {"value_type", type}}}, of);
      }
}

TEST_F(PairsOnADevice, OfMoreRanksThanOneKernelAddsUpHaveTheBitsOfTheCpu) {
  for (const char* type : {"fp32", "fp16", "int8"})
    expect_the_bits_of_the_cpu({"threshold", {{"threshold", 3.0}, {"value_type", type}}},
                               folded(90, 40));
}

TEST_F(PairsOnADevice, HaveTheBitsOfTheCpuWhereNothingIsKeptOrWorkIsCompensatedAlready) {
  for (const char* plugin : {"topk", "threshold"})
    for (const char* type : kValueTypes)
      for (const Work work : {Work::kGradient, Work::kKept})
        expect_the_bits_of_the_cpu({plugin, {{"value_type", type}}},
                                   {.shape = {5000}, .work = work});
}

TEST_F(PairsOnADevice, OfEveryRowHaveTheBitsOfTheCpu) {
  const test::Shape shapes[] = {{0},       {1},        {1000},      {1, 50},     {40, 1},
                                {24, 16},  {3, 9000},  {300, 1100}, {7, 100, 9}, {2, 3, 3, 3},
                                {5, 0, 3}, {64, 2, 2}, {1, 2000, 3}};
  Sample sample;
  for (const test::Shape& shape : shapes)
    for (const char* type : {"fp32", "bf16"})
      for (const Work work : {Work::kKept, Work::kGradient})
        if (sample.takes())
          expect_the_bits_of_the_cpu(
              {"adtopk", {{"density", 0.05}, {"mode", "plain"}, {"value_type", type}}},
              {.shape = shape, .work = work});
}

// Each step has new gradients. At first their size jumps now and then, so that thresholds of odd
// steps are estimated, reused, pass too many or too few entries, and become due. Then the size
// stays constant, and the last quarter of the steps chooses rows.
void expect_reuse_as_on_the_cpu(const Method& method, const test::Shape& shape, uint64_t n_steps,
                                std::map<uint64_t, int>& counts) {
  const Compressor compressor(method);
  const Case of{.shape = shape};
  Ranks there(compressor, of, true), here(compressor, of, false);
  for (uint64_t index = 0; index < n_steps; ++index) {
    const float size = index > 20 ? 1 : index % 12 == 9 ? 1.1f : index % 12 == 11 ? 0.5f : 1;
    for (Ranks* ranks : {&there, &here})
      for (uint32_t r = 0; r < of.ranks; ++r) {
        std::vector<float> work = drawn(test::numel_of(shape), 10 * index + r);
        for (float& value : work) value *= size;
        (*ranks)[r].set("work", work);
      }
    const Seen got = there.step(index), expected = here.step(index);
    EXPECT_EQ(difference(got, expected), "")
        << text_of(method) << " of " << test::text_of(shape) << ", step " << index;
    if (index % 2 == 1)
      ++counts[expected.at("rank 0 round 0: section 0").size() / sizeof(uint32_t)];
  }
}

TEST_F(PairsOnADevice, ByAReusedThresholdHaveTheBitsOfTheCpu) {
  Sample sample;
  for (const test::Shape& shape : std::vector<test::Shape>{{0}, {1}, {31}, {24, 16}, {5, 40, 9}})
    for (const char* type : {"fp32", "fp16", "int8"}) {
      if (!sample.takes()) continue;
      std::map<uint64_t, int> counts;
      expect_reuse_as_on_the_cpu({"adtopk",
                                  {{"density", 0.05},
                                   {"mode", "threshold"},
                                   {"warm_up_steps", 3},
                                   {"reuse_steps", 3},
                                   {"total_steps", 32},
                                   {"value_type", type}}},
                                 shape, 32, counts);
    }
}

TEST_F(PairsOnADevice, ByAReusedThresholdAreOfEveryNumberThatMayGo) {
  std::map<uint64_t, int> counts;
  expect_reuse_as_on_the_cpu({"adtopk",
                              {{"density", 0.01},
                               {"mode", "threshold"},
                               {"warm_up_steps", 3},
                               {"reuse_steps", 4},
                               {"total_steps", 40}}},
                             {70, 150}, 40, counts);
  EXPECT_GT(counts[105], 0) << "exactly";
  EXPECT_GT(counts[115], 0) << "at most a tenth more";
  EXPECT_GT(counts[70], 0) << "one of each row";
  EXPECT_GT(counts.size(), 3u) << "all that reach a threshold";
}

TEST_F(PairsOnADevice, ByAReusedThresholdFillUpWithZerosAsOnTheCpu) {
  const Compressor adtopk({"adtopk", {{"density", 0.1}, {"mode", "threshold"}}});
  std::vector<float> few(500, 0.0f);
  few[17] = 3, few[400] = -1e-3f;
  const Case of{.shape = {500}, .ranks = 1};
  Ranks there(adtopk, of, true), here(adtopk, of, false);
  for (const uint64_t index : {1, 3}) {
    for (Ranks* ranks : {&there, &here}) (*ranks)[0].set("work", few);
    EXPECT_EQ(difference(there.step(index), here.step(index)), "") << index;
  }
}

TEST_F(PairsOnADevice, NobodyWaitsForAReusedThreshold) {
  const Compressor adtopk({"adtopk", {{"mode", "threshold"}, {"total_steps", 8}}});
  Place place(true);
  PlacedGradient gradient(place, adtopk, {.shape = {90, 40}, .ranks = 1}, 0);
  for (const uint64_t index : {1, 7}) {
    gradient.begin(index);
    PlacedPayload payload(place, gradient.planned());
    const uint64_t before = waits().total();
    EXPECT_EQ(gradient.encode(payload).message, "");
    EXPECT_EQ(waits().total(), before) << index;
    EXPECT_EQ(payload.section(0).count, PENSTOCK_COUNT_ON_DEVICE) << index;
  }
}

TEST_F(PairsOnADevice, SayWhereTheyWork) {
  for (const char* type : kValueTypes) {
    EXPECT_EQ(device_types({"topk", {{"value_type", type}}}), kOnBoth) << type;
    EXPECT_EQ(device_types({"threshold", {{"value_type", type}}}), kOnBoth) << type;
  }
  EXPECT_EQ(device_types({"topk", {{"scope", "bucket"}}}), kOnCpu);
  EXPECT_EQ(device_types({"adtopk", {{"mode", "plain"}}}), kOnBoth);
  EXPECT_EQ(device_types({"adtopk", {{"mode", "interleaved"}}}), kOnBoth);
  EXPECT_EQ(device_types({"adtopk", {{"mode", "threshold"}}}), kOnBoth);
}

TEST_F(PairsOnADevice, AreRefusedWhereTheirScaleMakesNoNumbers) {
  const Compressor topk({"topk", {{"value_type", "int8"}}});
  Ranks rank(topk, folded(1000, 1), true);
  Sent sent = rank[0].send();
  for (const float scale : {-1.0f, std::nanf(""), 1e38f}) {
    sent.sections[2].set<float>({scale});
    const test::Outcome outcome = rank[0].receive({sent});
    EXPECT_EQ(outcome.code, uint32_t{PENSTOCK_INVALID_PAYLOAD}) << scale;
    EXPECT_TRUE(contains(outcome.message, "has the scale")) << outcome.message;
  }
  const Compressor halves({"topk", {{"value_type", "fp16"}}});
  Ranks of_halves(halves, folded(1000, 1), true);
  sent = of_halves[0].send();
  for (const float scale : {0.0f, -1.0f, 3.0f, std::nanf(""), 0x1p113f, 1e-40f}) {
    sent.sections[2].set<float>({scale});
    const test::Outcome outcome = of_halves[0].receive({sent});
    EXPECT_EQ(outcome.code, uint32_t{PENSTOCK_INVALID_PAYLOAD}) << scale;
    EXPECT_TRUE(contains(outcome.message, "expected a power of two")) << outcome.message;
  }
}

TEST_F(PairsOnADevice, AreRefusedWhereValuesAreMissingOrTheKindIsAnother) {
  const Compressor threshold({"threshold", {{"threshold", 2.0}}});
  Ranks rank(threshold, folded(1000, 1), true);
  Sent sent = rank[0].send();
  ASSERT_GT(sent.sections[0].count, 0u);
  sent.kind = PENSTOCK_PAYLOAD_DENSE;
  EXPECT_EQ(rank[0].receive({sent}).code, uint32_t{PENSTOCK_INVALID_PAYLOAD});
  sent.kind = PENSTOCK_PAYLOAD_SPARSE;
  sent.sections[1].drop_last();
  EXPECT_EQ(rank[0].receive({sent}).code, uint32_t{PENSTOCK_INVALID_PAYLOAD});
}

}  // namespace penstock::simulated::pairs_test
