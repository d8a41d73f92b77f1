// Random-k on a device, against itself on the CPU: the same positions, values and rests, to the
// bit.
#include <testing/gtest.hpp>

#include "planned.hpp"

namespace penstock::simulated::drawn_test {

class DrawnOnADevice : public SimulatedDevice {};

// One rank's payload stands for the sum of all: how sums are formed is the transport's matter.
StepCase drawn_steps(const test::OptionSettings& options, uint64_t n) {
  StepCase of{"randomk", options, n, 1, false};
  of.steps = 3;
  return of;
}

void expect_the_bits_of_the_cpu(const StepCase& of, const std::string& what) {
  const LeftBehind got = gathered_steps(true, of), expected = gathered_steps(false, of);
  EXPECT_TRUE(got.bytes == expected.bytes) << what << ", " << of.n << " entries";
  for (const Report& report : reports()) ADD_FAILURE() << report.sentence;
}

TEST_F(DrawnOnADevice, HasTheBitsOfTheCpu) {
  for (const uint64_t n : {0, 1, 31, 63, 64, 65, 1000, 70001})
    for (const char* type : {"fp32", "fp16", "bf16"})
      for (const double density : {0.01, 0.3, 1.0})
        expect_the_bits_of_the_cpu(drawn_steps({{"density", density}, {"value_type", type}}, n),
                                   std::string(type) + ", density " + std::to_string(density));
}

TEST_F(DrawnOnADevice, HasTheBitsOfTheCpuWhereNothingIsKeptAndTheResultIsScaled) {
  for (const bool unbiased : {false, true}) {
    StepCase of = drawn_steps({{"density", 0.1}, {"unbiased", unbiased}}, 1000);
    of.keeps = false;
    expect_the_bits_of_the_cpu(of, unbiased ? "unbiased" : "biased");
  }
}

TEST_F(DrawnOnADevice, SendsNoMoreInSixteenBitsThanASumOfAllRanksCanHold) {
  const uint64_t n = 100;
  std::vector<float> x(n);
  for (uint64_t i = 0; i < n; ++i) x[i] = (i % 2 == 0 ? 1e38f : -3e38f) / float(1 + i % 7);
  for (const char* type : {"fp16", "bf16"}) {
    const StepCase of = drawn_steps({{"density", 1.0}, {"value_type", type}}, n);
    const Lone got(true, of, x, 3), expected(false, of, x, 3);
    EXPECT_TRUE(got.sent == expected.sent) << type;
    EXPECT_EQ(got.left, expected.left) << type;
    EXPECT_NE(got.left, std::vector<float>(n)) << type;
  }
}

TEST_F(DrawnOnADevice, OfAnAbsentSumIsZero) {
  Place place(true);
  PlannedGradient gradient(place, drawn_steps({}, 1000), 0);
  penstock_step step{};
  step.struct_size = sizeof step;
  step.grad_scale = 1;
  step.world = 1;
  gradient.payload().kind = PENSTOCK_PAYLOAD_ABSENT;
  EXPECT_EQ(gradient.decode(step, {&gradient.payload()}).message, "");
  EXPECT_EQ(gradient.out(), std::vector<float>(1000));
}

TEST_F(DrawnOnADevice, RefusesASumOfAnotherSize) {
  Place place(true);
  PlannedGradient gradient(place, drawn_steps({}, 1000), 0);
  penstock_step step{};
  step.struct_size = sizeof step;
  step.grad_scale = 1;
  step.world = 1;
  gradient.encode(step, false, 1);
  --gradient.section(0).count;
  EXPECT_EQ(gradient.decode(step, {&gradient.payload()}).code, uint32_t{PENSTOCK_INVALID_PAYLOAD});
}

// Two ranks' chunks: the sum of both norms, and then of both ranks' values, as a transport would
// have formed them. What each call leaves behind, in order.
std::vector<Bytes> chunk_steps(bool on_device, const StepCase& of) {
  Place place(on_device);
  std::deque<PlannedGradient> ranks;
  for (uint64_t r = 0; r < 2; ++r) ranks.emplace_back(place, of, r);
  std::vector<Bytes> left;
  for (uint64_t s = 0; s < 3; ++s) {
    penstock_step step{};
    step.struct_size = sizeof step;
    step.index = s;
    step.grad_scale = 1;
    step.world = 2;
    for (uint32_t round = 0; round < ranks[0].n_rounds(); ++round) {
      for (uint64_t r = 0; r < 2; ++r) {
        if (round == 0)
          ranks[r].encode(step, false, 10 * s + r);
        else
          ranks[r].encode_round(step, false, round);
        left.push_back(ranks[r].sent(0, round));
        left.push_back(bytes_of(ranks[r].work()));
      }
      // Rank 0's stands for the sum: every rank decodes the same one.
      for (uint64_t r = 0; r < 2; ++r) {
        EXPECT_EQ(ranks[r].decode(step, {&ranks[0].payload(round)}, round).message, "");
        left.push_back(bytes_of(ranks[r].out()));
        for (uint64_t i = 0; i < ranks[r].n_states(); ++i)
          left.push_back(bytes_of(ranks[r].state(i)));
      }
    }
  }
  return left;
}

TEST_F(DrawnOnADevice, ChunksHaveTheBitsOfTheCpu) {
  for (const uint64_t n : {0, 1, 31, 63, 64, 65, 1000, 70001})
    for (const char* type : {"fp32", "fp16", "bf16"})
      for (const int chunk : {1, 64, 20000})
        for (const bool keeps : {true, false}) {
          if (n / uint64_t(chunk) > 1000) continue;  // a block for each chunk is slow here
          StepCase of{"chunktopk", {{"density", 0.1}, {"value_type", type}, {"chunk", chunk}}, n};
          of.keeps = keeps;
          EXPECT_TRUE(chunk_steps(true, of) == chunk_steps(false, of))
              << type << ", " << n << " entries in chunks of " << chunk;
          for (const Report& report : reports()) ADD_FAILURE() << report.sentence;
        }
}

}  // namespace penstock::simulated::drawn_test
