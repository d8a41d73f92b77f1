// Compressors that send every value and sum on the way (none, fp16 and bf16), on a device, compared
// with the CPU. The bits must be equal.
#include "ranks.hpp"

namespace penstock::simulated::sums_test {

constexpr const char* kAll[] = {"none", "fp16", "bf16"};

class SumsOnADevice : public WellUsedDevice {};

// Includes values that are too large for 16 bits, alone or as a sum, and zeros of both signs.
std::vector<float> drawn_with_extremes(uint64_t n, uint64_t seed) {
  std::vector<float> values = drawn(n, seed);
  const float extremes[] = {-0.0f, 6e4f, 0.0f, -3e30f, 1e-30f, 2e7f, -65504.0f, 3.3e38f};
  for (uint64_t i = 0; i < n / 7; ++i) values[7 * i + seed % 7] = extremes[i % 8];
  return values;
}

TEST_F(SumsOnADevice, HaveTheBitsOfTheCpu) {
  for (const char* name : kAll) {
    const Compressor compressor({name});
    for (const int64_t n : kAwkwardSizes)
      for (const uint32_t ranks : {1u, 2u, 3u})
        for (const Work work : {Work::kGradient, Work::kKept})
          expect_the_bits_of_the_cpu(
              compressor,
              {.shape = {n}, .ranks = ranks, .work = work, .draw = drawn_with_extremes});
  }
}

TEST_F(SumsOnADevice, CompensateInTheKernelThatRounds) {
  for (const char* name : {"fp16", "bf16"}) {
    const Compressor compressor({name});
    for (const uint32_t form :
         {PENSTOCK_FORM_AFFINE, PENSTOCK_FORM_HEAVY_BALL, PENSTOCK_FORM_NESTEROV}) {
      for (const int64_t n : kAwkwardSizes)
        expect_the_bits_of_the_cpu(compressor, {.shape = {n}, .ranks = 2, .form = form});
      Place place(true);
      PlacedGradient gradient(place, compressor, {.shape = {5000}, .ranks = 1, .form = form}, 0);
      PlacedPayload payload(place, gradient.planned());
      const uint64_t before = calls(Call::kLaunch);
      EXPECT_EQ(gradient.encode(payload).message, "");
      EXPECT_EQ(calls(Call::kLaunch) - before, 1u) << name;
    }
  }
}

TEST_F(SumsOnADevice, CountWhoSendsNothingAsZeros) {
  for (const char* name : kAll) {
    const Compressor compressor({name});
    for (const Work work : {Work::kGradient, Work::kKept}) {
      expect_the_bits_of_the_cpu(compressor,
                                 {.shape = {100}, .ranks = 3, .work = work, .absent = {2}});
      const Case nobody{.shape = {100}, .ranks = 3, .work = work, .absent = {0, 1, 2}};
      expect_the_bits_of_the_cpu(compressor, nobody);
      EXPECT_EQ(Ranks(compressor, nobody, true).step(0).at("rank 1 gradient"), Bytes(400)) << name;
    }
  }
}

TEST_F(SumsOnADevice, TakeWhateverTypeNoneTakes) {
  for (const uint32_t dtype : {PENSTOCK_FLOAT16, PENSTOCK_BFLOAT16, PENSTOCK_FLOAT64})
    for (const Work work : {Work::kGradient, Work::kKept})
      expect_the_bits_of_the_cpu({"none"}, {.shape = {70}, .work = work, .dtype = dtype});
}

// For an item with a residual: one kernel to send, one to receive, and one for give_back.
TEST_F(SumsOnADevice, LaunchOneKernelToSendAndOneToReceive) {
  for (const char* name : {"fp16", "bf16"}) {
    const Compressor compressor({name});
    Ranks rank(compressor, {.shape = {5000}, .ranks = 1}, true);
    const uint64_t before = calls(Call::kLaunch);
    (void)rank.step(0);
    EXPECT_EQ(calls(Call::kLaunch) - before, 3u) << name;
  }
}

TEST_F(SumsOnADevice, RefuseASumOfAnotherSize) {
  for (const char* name : kAll)
    for (const bool on_device : {false, true}) {
      const Compressor compressor({name});
      Ranks rank(compressor, {.shape = {65}, .ranks = 1}, on_device);
      Sent sent = rank[0].send();
      sent.sections[0].drop_last();
      const test::Outcome outcome = rank[0].receive({sent});
      EXPECT_EQ(outcome.code, uint32_t{PENSTOCK_INVALID_PAYLOAD}) << name;
      EXPECT_TRUE(contains(outcome.message, "gradient 'gradient'")) << outcome.message;
      EXPECT_TRUE(contains(outcome.message, "64 elements")) << outcome.message;
      EXPECT_TRUE(contains(outcome.message, "expected 65")) << outcome.message;
    }
}

TEST_F(SumsOnADevice, SayWhereTheyWork) {
  for (const char* name : kAll) EXPECT_EQ(device_types({name}), kOnBoth) << name;
}

TEST_F(SumsOnADevice, TellTheGradientThatTheDeviceRefuses) {
  const Compressor compressor({"fp16"});
  Place place(true);
  PlacedGradient gradient(place, compressor, {.shape = {65}, .ranks = 1}, 0);
  PlacedPayload payload(place, gradient.planned());
  fail_call(Call::kLaunch, 1, 719);
  const test::Outcome outcome = gradient.encode(payload);
  EXPECT_EQ(outcome.code, uint32_t{PENSTOCK_DEVICE_ERROR});
  EXPECT_TRUE(contains(outcome.message, "cuda:1 cannot round gradient 'gradient'"))
      << outcome.message;
}

}  // namespace penstock::simulated::sums_test
