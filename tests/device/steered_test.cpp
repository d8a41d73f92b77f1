// Sparse methods whose threshold is found on the device, against themselves on the CPU, over
// several steps in which thresholds are estimated, reused, missed and learned.
//
// Thresholds rest on sums in double, which a device forms in another order: they differ by less
// than a millionth. The entries that go are the same unless one lies in between, and none of these
// does.
#include <testing/gtest.hpp>

#include "planned.hpp"

namespace penstock::simulated::steered_test {

class SteeredOnADevice : public SimulatedDevice {};

const uint64_t kAwkwardSizes[] = {0, 1, 31, 63, 64, 65, 1000, 70001};

void expect_the_choice_of_the_cpu(const StepCase& of, const std::string& what) {
  const LeftBehind got = gathered_steps(true, of), expected = gathered_steps(false, of);
  EXPECT_TRUE(got.bytes == expected.bytes) << of.plugin << " " << what << ", " << of.n;
  ASSERT_EQ(got.states.size(), expected.states.size());
  for (uint64_t i = 0; i < got.states.size(); ++i)
    for (uint64_t j = 0; j < got.states[i].size(); ++j)
      EXPECT_NEAR(got.states[i][j], expected.states[i][j], 1e-6 * std::fabs(expected.states[i][j]))
          << of.plugin << " " << what << ", " << of.n << ": number " << j << " of state " << i;
  for (const Report& report : reports()) ADD_FAILURE() << report.sentence;
}

StepCase steps_of(const std::string& plugin, const test::OptionSettings& options, uint64_t n) {
  StepCase of{plugin, options, n};
  of.steps = n > 5000 ? 5 : 12;
  return of;
}

TEST_F(SteeredOnADevice, ByANormalLawChooseWhatTheCpuChooses) {
  for (const uint64_t n : kAwkwardSizes)
    for (const int period : {1, 3})
      expect_the_choice_of_the_cpu(
          steps_of("gaussiank", {{"density", 0.02}, {"reuse_period", period}}, n),
          "period " + std::to_string(period));
}

TEST_F(SteeredOnADevice, BetweenMeanAndLargestChooseWhatTheCpuChooses) {
  for (const char* search : {"bisection", "trimmed"})
    for (const uint64_t n : kAwkwardSizes)
      for (const int period : {1, 5})
        expect_the_choice_of_the_cpu(
            steps_of("redsync", {{"density", 0.02}, {"search", search}, {"reuse_period", period}},
                     n),
            std::string(search) + ", period " + std::to_string(period));
}

TEST_F(SteeredOnADevice, ByASampledThresholdChooseWhatTheCpuChooses) {
  for (const uint64_t n : {0, 1, 64, 5000, 70001})
    for (const double ratio : {0.01, 1.0})
      for (const int rounds : {0, 10, 32})
        expect_the_choice_of_the_cpu(
            steps_of("dgc", {{"density", 0.01}, {"sample_ratio", ratio}, {"max_rounds", rounds}},
                     n),
            std::to_string(ratio) + ", rounds " + std::to_string(rounds));
}

TEST_F(SteeredOnADevice, ChooseWhatTheCpuChoosesInEveryTypeOfValues) {
  for (const char* plugin : {"gaussiank", "redsync", "dgc"})
    for (const char* type : {"fp16", "bf16", "int8"})
      expect_the_choice_of_the_cpu(steps_of(plugin, {{"value_type", type}}, 5000), type);
}

TEST_F(SteeredOnADevice, ChooseWhatTheCpuChoosesWhereNothingIsKept) {
  for (const char* plugin : {"gaussiank", "redsync", "dgc"}) {
    StepCase of = steps_of(plugin, {}, 5000);
    of.folds = of.keeps = false;
    expect_the_choice_of_the_cpu(of, "not kept");
  }
}

TEST_F(SteeredOnADevice, NeverSendZerosButWhereTheCpuDoes) {
  const uint64_t n = 5000;
  std::vector<float> zeros(n), few(n), equal(n, -2.5f);
  few[17] = 3, few[4000] = -1e-3f;
  for (const char* plugin : {"gaussiank", "redsync", "dgc"})
    for (const std::vector<float>& x : {zeros, few, equal}) {
      const StepCase of{plugin, {{"density", 0.01}}, n, 1, false};
      const Lone got(true, of, x), expected(false, of, x);
      EXPECT_TRUE(got.sent == expected.sent)
          << plugin << " sends " << got.sent.size() / 4 << ", the CPU " << expected.sent.size() / 4
          << " of " << x[17];
      EXPECT_EQ(got.left, expected.left) << plugin;
      EXPECT_EQ(got.states, expected.states) << plugin;
    }
}

TEST_F(SteeredOnADevice, NobodyWaitsForAThreshold) {
  for (const char* plugin : {"gaussiank", "redsync", "dgc"}) {
    const StepCase of{plugin, {}, 70001, 1};
    Place place(true);
    PlannedGradient gradient(place, of, 0);
    penstock_step step{};
    step.struct_size = sizeof step;
    step.grad_scale = 1;
    step.world = 1;
    penstock_item* item = &gradient.item();
    const uint64_t waits_before = waits().total();
    EXPECT_EQ(gradient.compressor()
                  .encode(gradient.exec(), step, 0, {item}, {&gradient.payload()})
                  .message,
              "");
    EXPECT_EQ(waits().total(), waits_before) << plugin;
    EXPECT_EQ(gradient.section(0).count, PENSTOCK_COUNT_ON_DEVICE) << plugin;
  }
}

TEST_F(SteeredOnADevice, SayWhichOptionsHaveKernels) {
  const uint64_t cpu = uint64_t{1} << PENSTOCK_DEVICE_CPU;
  const uint64_t both = cpu | uint64_t{1} << PENSTOCK_DEVICE_CUDA;
  const auto devices = [&](const std::string& name, const test::OptionSettings& settings) {
    return test::CompressorInstance(simulated_plugin("compressor-" + name + "-simulated.so"),
                                    settings)
        .describe()
        .device_types;
  };
  EXPECT_EQ(devices("gaussiank", {}), both);
  EXPECT_EQ(devices("redsync", {}), both);
  EXPECT_EQ(devices("redsync", {{"search", "trimmed"}, {"value_type", "int8"}}), both);
  EXPECT_EQ(devices("redsync", {{"quantised", true}}), cpu);
  EXPECT_EQ(devices("dgc", {}), both);
  EXPECT_EQ(devices("dgc", {{"resample", false}}), cpu);
}

}  // namespace penstock::simulated::steered_test
