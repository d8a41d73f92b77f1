// Sparse methods on a device, against themselves on the CPU: the same entries go, in every type of
// values, with the same bits, and what is left is the same.
#include "ranks.hpp"

namespace penstock::simulated::pairs_test {

class PairsOnADevice : public WellUsedDevice {};

const char* const kValueTypes[] = {"fp32", "fp16", "bf16", "int8"};

// Compensated in the sweep that chooses.
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
  for (const int64_t n : {31, 1000, 70001})
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
  for (const char* type : {"fp32", "int8"})
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
  for (const test::Shape& shape : shapes)
    for (const char* type : {"fp32", "bf16"})
      for (const Work work : {Work::kKept, Work::kGradient})
        expect_the_bits_of_the_cpu(
            {"adtopk", {{"density", 0.05}, {"mode", "plain"}, {"value_type", type}}},
            {.shape = shape, .work = work});
}

TEST_F(PairsOnADevice, SayWhereTheyWork) {
  for (const char* type : kValueTypes) {
    EXPECT_EQ(device_types({"topk", {{"value_type", type}}}), kOnBoth) << type;
    EXPECT_EQ(device_types({"threshold", {{"value_type", type}}}), kOnBoth) << type;
  }
  EXPECT_EQ(device_types({"topk", {{"scope", "bucket"}}}), kOnCpu);
  EXPECT_EQ(device_types({"adtopk", {{"mode", "plain"}}}), kOnBoth);
  EXPECT_EQ(device_types({"adtopk", {{"mode", "interleaved"}}}), kOnBoth);
  EXPECT_EQ(device_types({"adtopk", {{"mode", "threshold"}}}), kOnCpu);
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
