// Compressors that send every value and sum on the way, none, fp16 and bf16, on a device against
// themselves on the CPU: the same bits.
#include "summed_ranks.hpp"

namespace penstock::simulated::sums_test {

constexpr const char* kAll[] = {"none", "fp16", "bf16"};

class SumsOnADevice : public SimulatedDevice {
 protected:
  void TearDown() override {
    for (const Report& report : reports()) ADD_FAILURE() << report.sentence;
    SimulatedDevice::TearDown();
  }
};

std::string file_of(const std::string& compressor) {
  return "compressor-" + compressor + "-simulated.so";
}

// With values that 16 bits do not reach, alone or as a sum, and zeros of both signs.
std::vector<float> drawn_with_extremes(uint64_t n, uint64_t seed) {
  std::vector<float> values = drawn(n, seed);
  const float extremes[] = {-0.0f, 6e4f, 0.0f, -3e30f, 1e-30f, 2e7f, -65504.0f, 3.3e38f};
  for (uint64_t i = 0; i < n / 7; ++i) values[7 * i + seed % 7] = extremes[i % 8];
  return values;
}

TEST_F(SumsOnADevice, HaveTheBitsOfTheCpu) {
  for (const char* compressor : kAll) {
    const test::LoadedPlugin plugin = simulated_plugin(file_of(compressor));
    const test::CompressorInstance instance(plugin);
    for (const int64_t n : {0, 1, 31, 63, 64, 65, 1000, 70001})
      for (const uint32_t ranks : {1u, 2u, 3u})
        for (const bool keeps : {false, true}) {
          const SummedCase of{.shape = {n}, .ranks = ranks, .keeps = keeps};
          const Seen there = SummedRanks(plugin, instance, of, true, drawn_with_extremes).step(0);
          const Seen here = SummedRanks(plugin, instance, of, false, drawn_with_extremes).step(0);
          EXPECT_EQ(difference(there, here), "") << compressor << ", " << text_of(of);
        }
  }
}

TEST_F(SumsOnADevice, CountWhoSendsNothingAsZeros) {
  for (const char* compressor : kAll) {
    const test::LoadedPlugin plugin = simulated_plugin(file_of(compressor));
    const test::CompressorInstance instance(plugin);
    for (const uint32_t absent : {1u, 3u})
      for (const bool keeps : {false, true}) {
        const SummedCase of{.shape = {100}, .ranks = 3, .keeps = keeps, .absent = absent};
        const Seen there = SummedRanks(plugin, instance, of, true, drawn).step(0);
        const Seen here = SummedRanks(plugin, instance, of, false, drawn).step(0);
        EXPECT_EQ(difference(there, here), "") << compressor << ", " << text_of(of);
        if (absent < of.ranks) continue;
        EXPECT_EQ(there.at("rank 1 gradient"), Bytes(400)) << compressor << ", " << text_of(of);
      }
  }
}

TEST_F(SumsOnADevice, TakeWhateverTypeNoneTakes) {
  const test::LoadedPlugin plugin = simulated_plugin(file_of("none"));
  const test::CompressorInstance instance(plugin);
  for (const uint32_t dtype : {PENSTOCK_FLOAT16, PENSTOCK_BFLOAT16, PENSTOCK_FLOAT64})
    for (const bool keeps : {false, true}) {
      const SummedCase of{.shape = {70}, .keeps = keeps, .dtype = dtype};
      const Seen there = SummedRanks(plugin, instance, of, true, drawn).step(0);
      const Seen here = SummedRanks(plugin, instance, of, false, drawn).step(0);
      EXPECT_EQ(difference(there, here), "") << text_of(of);
    }
}

// Of an item that keeps: one kernel to send, one to receive, and one for what give_back would want.
TEST_F(SumsOnADevice, LaunchOneKernelToSendAndOneToReceive) {
  for (const char* compressor : {"fp16", "bf16"}) {
    const test::LoadedPlugin plugin = simulated_plugin(file_of(compressor));
    const test::CompressorInstance instance(plugin);
    SummedRanks rank(plugin, instance, {.shape = {5000}, .ranks = 1}, true, drawn);
    const uint64_t before = calls(Call::kLaunch);
    (void)rank.step(0);
    EXPECT_EQ(calls(Call::kLaunch) - before, 3u) << compressor;
  }
}

TEST_F(SumsOnADevice, RefuseASumOfAnotherSize) {
  for (const char* compressor : kAll) {
    const test::LoadedPlugin plugin = simulated_plugin(file_of(compressor));
    const test::CompressorInstance instance(plugin);
    for (const bool on_device : {false, true}) {
      SummedRanks rank(plugin, instance, {.shape = {65}, .ranks = 1}, on_device, drawn);
      test::OwnedPayload payload(rank.need(0).rounds[0].sections, -1);
      payload.c()->kind = PENSTOCK_PAYLOAD_DENSE;
      payload.section(0).count = 64;
      const test::Outcome outcome = rank.decode_once(payload, 0);
      EXPECT_EQ(outcome.code, uint32_t{PENSTOCK_INVALID_PAYLOAD}) << compressor;
      EXPECT_TRUE(contains(outcome.message, "gradient 'gradient'")) << outcome.message;
      EXPECT_TRUE(contains(outcome.message, "64 elements")) << outcome.message;
      EXPECT_TRUE(contains(outcome.message, "expected 65")) << outcome.message;
    }
  }
}

TEST_F(SumsOnADevice, SayWhereTheyWork) {
  const uint64_t both = uint64_t{1} << PENSTOCK_DEVICE_CPU | uint64_t{1} << PENSTOCK_DEVICE_CUDA;
  for (const char* compressor : kAll) {
    const test::LoadedPlugin plugin = simulated_plugin(file_of(compressor));
    EXPECT_EQ(test::CompressorInstance(plugin).describe().device_types, both) << compressor;
  }
}

TEST_F(SumsOnADevice, TellTheGradientThatTheDeviceRefuses) {
  const test::LoadedPlugin plugin = simulated_plugin(file_of("fp16"));
  const test::CompressorInstance instance(plugin);
  SummedRanks rank(plugin, instance, {.shape = {65}, .ranks = 1}, true, drawn);
  fail_call(Call::kLaunch, 1, 719);
  const test::Outcome outcome = rank.encode_once();
  EXPECT_EQ(outcome.code, uint32_t{PENSTOCK_DEVICE_ERROR});
  EXPECT_TRUE(contains(outcome.message, "cuda:1 cannot round gradient 'gradient'"))
      << outcome.message;
}

}  // namespace penstock::simulated::sums_test
