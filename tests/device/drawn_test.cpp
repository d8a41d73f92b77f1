// Random-k, top-k of chunks, and COVAP, on a device, compared with the CPU: equal positions,
// values, sums and rests, to the bit.
#include "ranks.hpp"

namespace penstock::simulated::drawn_test {

class DrawnOnADevice : public WellUsedDevice {};

TEST_F(DrawnOnADevice, HasTheBitsOfTheCpu) {
  for (const int64_t n : kAwkwardSizes)
    for (const char* type : {"fp32", "fp16", "bf16"})
      for (const double density : {0.01, 0.3, 1.0})
        expect_the_bits_of_the_cpu({"randomk", {{"density", density}, {"value_type", type}}},
                                   {.shape = {n}}, 3);
}

TEST_F(DrawnOnADevice, HasTheBitsOfTheCpuWhereNothingIsKeptAndTheResultIsScaled) {
  for (const bool unbiased : {false, true})
    expect_the_bits_of_the_cpu({"randomk", {{"density", 0.1}, {"unbiased", unbiased}}},
                               {.shape = {1000}, .work = Work::kGradient}, 3);
}

TEST_F(DrawnOnADevice, SendsNoMoreInSixteenBitsThanASumOfAllRanksCanHold) {
  const uint64_t n = 100;
  std::vector<float> x(n);
  for (uint64_t i = 0; i < n; ++i) x[i] = (i % 2 == 0 ? 1e38f : -3e38f) / float(1 + i % 7);
  for (const char* type : {"fp16", "bf16"}) {
    const Compressor randomk({"randomk", {{"density", 1.0}, {"value_type", type}}});
    const Case of{.shape = {int64_t(n)}, .ranks = 3};
    const Encoded got = encoded(randomk, of, true, x), expected = encoded(randomk, of, false, x);
    EXPECT_TRUE(got.sent == expected.sent) << type;
    EXPECT_EQ(difference(got.left, expected.left), "") << type;
    EXPECT_NE(floats_of(got.left.at("work")), std::vector<float>(n)) << type;
  }
}

TEST_F(DrawnOnADevice, OfAnAbsentSumIsZero) {
  for (const char* name : {"randomk", "covap"}) {
    const Compressor compressor({name});
    Ranks rank(compressor, {.shape = {1000}, .ranks = 1}, true);
    EXPECT_EQ(rank[0].receive({rank[0].absent()}).message, "") << name;
    EXPECT_EQ(rank[0].floats("gradient"), std::vector<float>(1000)) << name;
  }
}

TEST_F(DrawnOnADevice, RefusesASumOfAnotherSize) {
  for (const char* name : {"randomk", "covap"}) {
    const Compressor compressor({name});
    Ranks rank(compressor, {.shape = {1000}, .ranks = 1}, true);
    Sent sent = rank[0].send();
    sent.sections[0].drop_last();
    EXPECT_EQ(rank[0].receive({sent}).code, uint32_t{PENSTOCK_INVALID_PAYLOAD}) << name;
  }
}

TEST_F(DrawnOnADevice, SlicesInRotationHaveTheBitsOfTheCpu) {
  for (const int64_t n : kAwkwardSizes)
    for (const int interval : {1, 2, 7})
      for (const Work work : {Work::kKept, Work::kGradient})
        expect_the_bits_of_the_cpu({"covap", {{"interval", interval}}},
                                   {.shape = {n}, .work = work}, 3);
}

// Two kinds of sums: of norms, then of values.
TEST_F(DrawnOnADevice, ChunksHaveTheBitsOfTheCpu) {
  Sample sample;
  for (const int64_t n : kAwkwardSizes)
    for (const char* type : {"fp32", "fp16", "bf16"})
      for (const int chunk : {1, 64, 20000})
        for (const Work work : {Work::kKept, Work::kGradient}) {
          if (n / chunk > 1000 || !sample.takes()) continue;  // each chunk is a block, slow here
          expect_the_bits_of_the_cpu(
              {"chunktopk", {{"density", 0.1}, {"value_type", type}, {"chunk", chunk}}},
              {.shape = {n}, .work = work}, 3);
        }
}

}  // namespace penstock::simulated::drawn_test
