// Sparse methods on a device, against themselves on the CPU: the same entries go, in every type of
// values, with the same bits, and what is left is the same.
#include <testing/gtest.hpp>

#include "planned.hpp"

namespace penstock::simulated::pairs_test {

class PairsOnADevice : public SimulatedDevice {};

const uint64_t kAwkwardSizes[] = {0, 1, 31, 63, 64, 65, 1000, 70001};
const char* const kValueTypes[] = {"fp32", "fp16", "bf16", "int8"};

void expect_the_bits_of_the_cpu(const StepCase& of, const std::string& what) {
  const LeftBehind got = gathered_steps(true, of), expected = gathered_steps(false, of);
  EXPECT_TRUE(got.bytes == expected.bytes)
      << of.plugin << " " << what << ", " << of.n << " entries on " << of.ranks;
  for (const Report& report : reports()) ADD_FAILURE() << report.sentence;
}

TEST_F(PairsOnADevice, OfTopKHaveTheBitsOfTheCpuInEveryTypeOfValues) {
  for (const char* type : kValueTypes)
    for (const uint64_t n : kAwkwardSizes)
      expect_the_bits_of_the_cpu({"topk", {{"density", 0.05}, {"value_type", type}}, n}, type);
}

TEST_F(PairsOnADevice, AboveAThresholdHaveTheBitsOfTheCpuInEveryTypeOfValues) {
  for (const char* type : kValueTypes)
    for (const uint64_t n : kAwkwardSizes)
      expect_the_bits_of_the_cpu({"threshold", {{"threshold", 4.0}, {"value_type", type}}, n},
                                 type);
}

TEST_F(PairsOnADevice, AboveAThresholdAreTheLargestWhereMoreReachItThanThereIsRoomFor) {
  for (const uint64_t n : {31, 1000, 70001})
    expect_the_bits_of_the_cpu({"threshold", {{"threshold", 0.01}, {"capacity", 0.02}}, n}, "all");
}

TEST_F(PairsOnADevice, AboveAThresholdMayBeNone) {
  Place place(true);
  const StepCase of{"threshold", {{"threshold", 1e30}}, 1000, 1};
  PlannedGradient gradient(place, of, 0);
  penstock_step step{};
  step.struct_size = sizeof step;
  step.grad_scale = 1;
  step.world = 1;
  gradient.encode(step, true, 1);
  EXPECT_EQ(gradient.section(0).count, 0u);
  EXPECT_EQ(gradient.payload().kind, uint32_t{PENSTOCK_PAYLOAD_SPARSE});
  EXPECT_EQ(gradient.decode(step, {&gradient.payload()}).message, "");
  EXPECT_EQ(gradient.out(), std::vector<float>(1000));
}

TEST_F(PairsOnADevice, HaveTheBitsOfTheCpuOnAnyNumberOfRanks) {
  for (const char* type : kValueTypes)
    for (const uint64_t ranks : {1, 3})
      for (const uint64_t absent : {uint64_t{0}, ranks - 1, ranks})
        expect_the_bits_of_the_cpu({"threshold",
                                    {{"threshold", 3.0}, {"value_type", type}},
                                    500,
                                    ranks,
                                    true,
                                    true,
                                    absent},
                                   std::string(type) + " without " + std::to_string(absent));
}

TEST_F(PairsOnADevice, OfMoreRanksThanOneKernelAddsUpHaveTheBitsOfTheCpu) {
  for (const char* type : {"fp32", "int8"})
    expect_the_bits_of_the_cpu({"threshold", {{"threshold", 3.0}, {"value_type", type}}, 90, 40},
                               type);
}

TEST_F(PairsOnADevice, HaveTheBitsOfTheCpuWhereNothingIsKeptOrWorkIsCompensatedAlready) {
  for (const char* plugin : {"topk", "threshold"})
    for (const char* type : kValueTypes)
      for (const bool keeps : {false, true})
        expect_the_bits_of_the_cpu({plugin, {{"value_type", type}}, 5000, 2, false, keeps},
                                   std::string(type) + (keeps ? " kept" : " not kept"));
}

TEST_F(PairsOnADevice, OfEveryRowHaveTheBitsOfTheCpu) {
  const test::Shape shapes[] = {{0},       {1},        {1000},      {1, 50},     {40, 1},
                                {24, 16},  {3, 9000},  {300, 1100}, {7, 100, 9}, {2, 3, 3, 3},
                                {5, 0, 3}, {64, 2, 2}, {1, 2000, 3}};
  for (const test::Shape& shape : shapes)
    for (const char* type : {"fp32", "bf16"})
      for (const bool keeps : {true, false}) {
        StepCase of{"adtopk",
                    {{"density", 0.05}, {"mode", "plain"}, {"value_type", type}},
                    test::numel_of(shape),
                    2,
                    false,
                    keeps};
        of.shape = shape;
        expect_the_bits_of_the_cpu(of, test::text_of(shape) + " " + type);
      }
}

TEST_F(PairsOnADevice, SayWhereTheyWork) {
  const uint64_t cpu = uint64_t{1} << PENSTOCK_DEVICE_CPU;
  const uint64_t both = cpu | uint64_t{1} << PENSTOCK_DEVICE_CUDA;
  const auto devices = [&](const std::string& name, const test::OptionSettings& settings) {
    return test::CompressorInstance(simulated_plugin("compressor-" + name + "-simulated.so"),
                                    settings)
        .describe()
        .device_types;
  };
  for (const char* type : kValueTypes) {
    EXPECT_EQ(devices("topk", {{"value_type", type}}), both) << type;
    EXPECT_EQ(devices("threshold", {{"value_type", type}}), both) << type;
  }
  EXPECT_EQ(devices("topk", {{"scope", "bucket"}}), cpu);
  EXPECT_EQ(devices("adtopk", {{"mode", "plain"}}), both);
  EXPECT_EQ(devices("adtopk", {{"mode", "interleaved"}}), both);
  EXPECT_EQ(devices("adtopk", {{"mode", "threshold"}}), cpu);
}

TEST_F(PairsOnADevice, AreRefusedWhereTheirScaleMakesNoNumbers) {
  Place place(true);
  const StepCase of{"topk", {{"value_type", "int8"}}, 1000, 1};
  PlannedGradient gradient(place, of, 0);
  penstock_step step{};
  step.struct_size = sizeof step;
  step.grad_scale = 1;
  step.world = 1;
  gradient.encode(step, true, 1);
  for (const float scale : {-1.0f, std::nanf(""), 1e38f}) {
    place.write(static_cast<float*>(gradient.section(2).data), {scale});
    gradient.bring_to_host();
    const test::Outcome outcome = gradient.decode(step, {&gradient.payload()});
    EXPECT_EQ(outcome.code, uint32_t{PENSTOCK_INVALID_PAYLOAD}) << scale;
    EXPECT_TRUE(contains(outcome.message, "has the scale")) << outcome.message;
  }
}

TEST_F(PairsOnADevice, AreRefusedWhereValuesAreMissingOrTheKindIsAnother) {
  Place place(true);
  PlannedGradient gradient(place, {"threshold", {{"threshold", 2.0}}, 1000, 1}, 0);
  penstock_step step{};
  step.struct_size = sizeof step;
  step.grad_scale = 1;
  step.world = 1;
  gradient.encode(step, true, 1);
  ASSERT_GT(gradient.section(0).count, 0u);
  gradient.payload().kind = PENSTOCK_PAYLOAD_DENSE;
  EXPECT_EQ(gradient.decode(step, {&gradient.payload()}).code, uint32_t{PENSTOCK_INVALID_PAYLOAD});
  gradient.payload().kind = PENSTOCK_PAYLOAD_SPARSE;
  --gradient.section(1).count;
  EXPECT_EQ(gradient.decode(step, {&gradient.payload()}).code, uint32_t{PENSTOCK_INVALID_PAYLOAD});
}

}  // namespace penstock::simulated::pairs_test
