// Sparse methods that find their threshold on the device, compared with the CPU, over several
// steps. In these steps thresholds are estimated, reused, missed and corrected.
//
// Thresholds depend on sums in double, and a device adds in another order. They differ by less than
// a millionth. The sent entries are equal unless an entry lies between the two thresholds, and
// these tests have no such entry.
#include "ranks.hpp"

#include <support/long.hpp>

namespace penstock::simulated::steered_test {

class SteeredOnADevice : public WellUsedDevice {};

const char* const kAll[] = {"gaussiank", "redsync", "sidco", "dgc"};

void expect_near(const Bytes& there, const Bytes& here, const std::string& what) {
  const std::vector<float> got = floats_of(there), expected = floats_of(here);
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (uint64_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], 1e-6 * std::fabs(expected[i])) << what << ", number " << i;
}

// States may depend on sums of another order. Everything else must be equal.
void expect_the_choice_of_the_cpu(const Method& method, const Case& of) {
  const bool is_large = of.shape[0] > 5000;
  const uint64_t steps = test::is_long() ? (is_large ? 5 : 12) : (is_large ? 2 : 7);
  compare_steps(Compressor(method), of, steps,
                [](const Seen& there, const Seen& here, const std::string& what) {
                  ASSERT_EQ(there.size(), here.size()) << what;
                  for (const auto& [name, bytes] : here) {
                    const Bytes& got = there.at(name);
                    if (contains(name, " state ")) {
                      expect_near(got, bytes, what + ", " + name);
                    } else {
                      EXPECT_TRUE(got == bytes) << what << ", " << name;
                    }
                  }
                });
}
Case folded(int64_t n) {
  return {.shape = {n}, .form = PENSTOCK_FORM_AFFINE};
}

TEST_F(SteeredOnADevice, ByANormalLawChooseWhatTheCpuChooses) {
  for (const int64_t n : kAwkwardSizes)
    for (const int period : {1, 3})
      expect_the_choice_of_the_cpu({"gaussiank", {{"density", 0.02}, {"reuse_period", period}}},
                                   folded(n));
}

TEST_F(SteeredOnADevice, BetweenMeanAndLargestChooseWhatTheCpuChooses) {
  Sample sample;
  for (const char* search : {"bisection", "trimmed"})
    for (const int64_t n : kAwkwardSizes)
      for (const int period : {1, 5})
        if (sample.takes())
          expect_the_choice_of_the_cpu(
              {"redsync", {{"density", 0.02}, {"search", search}, {"reuse_period", period}}},
              folded(n));
}

const char* const kLaws[] = {"exponential", "pareto", "gamma_pareto", "gaussian"};

TEST_F(SteeredOnADevice, InStagesChooseWhatTheCpuChooses) {
  Sample sample;
  for (const char* law : kLaws)
    for (const int stages : {0, 1, 3})
      for (const int64_t n : std::vector<int64_t>{0, 1, 64, 5000, kLargeSize})
        if (sample.takes())
          expect_the_choice_of_the_cpu(
              {"sidco", {{"density", 0.02}, {"law", law}, {"stages", stages}}}, folded(n));
}

TEST_F(SteeredOnADevice, InManyStagesOfAnyFirstRatioReusedOrNotChooseWhatTheCpuChooses) {
  Sample sample;
  for (const int stages : {0, 2, 16})
    for (const double ratio : {0.03, 0.5, 1.0})
      for (const int period : {1, 3})
        if (sample.takes())
          expect_the_choice_of_the_cpu({"sidco",
                                        {{"density", 0.01},
                                         {"law", "pareto"},
                                         {"stages", stages},
                                         {"first_ratio", ratio},
                                         {"reuse_period", period}}},
                                       folded(5000));
}

TEST_F(SteeredOnADevice, ByASampledThresholdChooseWhatTheCpuChooses) {
  Sample sample;
  for (const int64_t n : std::vector<int64_t>{0, 1, 64, 5000, kLargeSize})
    for (const double ratio : {0.01, 1.0})
      for (const int rounds : {0, 10, 32})
        if (sample.takes())
          expect_the_choice_of_the_cpu(
              {"dgc", {{"density", 0.01}, {"sample_ratio", ratio}, {"max_rounds", rounds}}},
              folded(n));
}

// Bands that the first thresholds miss, above and below, and some bands that no threshold meets.
TEST_F(SteeredOnADevice, ByACorrectedThresholdChooseWhatTheCpuChooses) {
  Sample sample;
  for (const int64_t n : std::vector<int64_t>{0, 1, 64, 5000, kLargeSize})
    for (const double upper : {1.0, 1.3, 4.0})
      for (const int rounds : {0, 3, 10, 32})
        if (sample.takes())
          expect_the_choice_of_the_cpu({"dgc",
                                        {{"density", 0.01},
                                         {"resample", false},
                                         {"upper", upper},
                                         {"lower", 0.9},
                                         {"max_rounds", rounds}}},
                                       folded(n));
}

TEST_F(SteeredOnADevice, ChooseWhatTheCpuChoosesInEveryTypeOfValues) {
  Sample sample;
  for (const char* name : kAll)
    for (const char* type : {"fp16", "bf16", "int8"})
      if (sample.takes())
        expect_the_choice_of_the_cpu({name, {{"value_type", type}}}, folded(5000));
}

TEST_F(SteeredOnADevice, ChooseWhatTheCpuChoosesWhereNothingIsKept) {
  for (const char* name : kAll)
    expect_the_choice_of_the_cpu({name}, {.shape = {5000}, .work = Work::kGradient});
}

const Method kOneSign{"redsync", {{"density", 0.02}, {"quantised", true}}};

// Sums of integers are exact in every order, and so are means and rests.
std::vector<float> whole(uint64_t n, uint64_t seed) {
  std::vector<float> values = drawn(n, seed);
  for (float& value : values) value = std::round(value * 3);
  return values;
}
TEST_F(SteeredOnADevice, OfOneSignSendTheMeanThatTheCpuSends) {
  for (const char* search : {"bisection", "trimmed"})
    for (const int64_t n : kAwkwardSizes) {
      Method method = kOneSign;
      method.options.push_back({"search", search});
      const Compressor compressor(method);
      const Case of{.shape = {n}, .draw = whole};
      Ranks there(compressor, of, true), here(compressor, of, false);
      for (uint64_t index = 0; index < 4; ++index) {
        for (Ranks* ranks : {&there, &here}) ranks->draw("work", 10 * index);
        const Seen got = there.step(index), expected = here.step(index);
        for (const auto& [name, bytes] : expected) {
          if (contains(name, " state ")) {
            expect_near(got.at(name), bytes, name);
          } else {
            EXPECT_TRUE(got.at(name) == bytes)
                << search << ", " << n << ", step " << index << ", " << name;
          }
        }
      }
    }
}

TEST_F(SteeredOnADevice, OfOneSignSendAMeanNearTheCpus) {
  const Compressor compressor(kOneSign);
  for (const int64_t n : kAwkwardSizes)
    for (const uint64_t index : {0, 1}) {
      const Case of{.shape = {n}, .ranks = 1};
      Ranks there(compressor, of, true), here(compressor, of, false);
      for (Ranks* ranks : {&there, &here}) (*ranks)[0].begin(index);
      const Sent got = there[0].send(), expected = here[0].send();
      ASSERT_EQ(got.sections[0].bytes, expected.sections[0].bytes) << n;
      const float mean = expected.sections[1].as<float>()[0];
      EXPECT_NEAR(got.sections[1].as<float>()[0], mean, 0x1p-23 * std::fabs(mean)) << n;
      EXPECT_LE(index == 0 ? -mean : mean, 0) << n;
    }
}

TEST_F(SteeredOnADevice, OfOneSignAreRefusedWhereTheyAreNoPayloadOfOurs) {
  const Compressor compressor(kOneSign);
  Ranks rank(compressor, {.shape = {1000}, .ranks = 1}, true);
  const Sent good = rank[0].send();
  ASSERT_GT(good.sections[0].count, 2u);
  const auto refused = [&](const Sent& sent, const std::string& why) {
    const test::Outcome outcome = rank[0].receive({sent});
    EXPECT_EQ(outcome.code, uint32_t{PENSTOCK_INVALID_PAYLOAD}) << why;
    EXPECT_TRUE(contains(outcome.message, why)) << outcome.message;
  };
  Sent sent = good;
  std::vector<uint32_t> indices = good.sections[0].as<uint32_t>();
  std::swap(indices[0], indices[1]);
  sent.sections[0].set(indices);
  refused(sent, "at entry 1, expected ascending ones below 1000");
  indices = {1000};
  sent.sections[0].set(indices);
  refused(sent, "has index 1000 at entry 0");
  sent = good;
  sent.sections[1].set<float>({std::nanf("")});
  refused(sent, "has the mean nan, expected a finite one");
  sent = good;
  sent.kind = PENSTOCK_PAYLOAD_SPARSE;
  refused(sent, "expected coded");
}

TEST_F(SteeredOnADevice, NeverSendZerosButWhereTheCpuDoes) {
  const int64_t n = 5000;
  std::vector<float> zeros(n), few(n), equal(n, -2.5f);
  few[17] = 3, few[4000] = -1e-3f;
  for (const char* name : kAll)
    for (const std::vector<float>& x : {zeros, few, equal}) {
      const Compressor compressor({name, {{"density", 0.01}}});
      const Case of{.shape = {n}, .ranks = 1};
      const Encoded got = encoded(compressor, of, true, x),
                    expected = encoded(compressor, of, false, x);
      EXPECT_TRUE(got.sent == expected.sent)
          << name << " sends " << got.sent.sections[0].count << ", the CPU "
          << expected.sent.sections[0].count << " of " << x[17];
      EXPECT_EQ(difference(got.left, expected.left), "") << name;
    }
}

TEST_F(SteeredOnADevice, NobodyWaitsForAThreshold) {
  for (const Method& method : {Method{"gaussiank"}, Method{"redsync"}, Method{"dgc"}, kOneSign,
                               Method{"dgc", {{"resample", false}}}}) {
    const Compressor compressor(method);
    Place place(true);
    PlacedGradient gradient(place, compressor, {.shape = {kLargeSize}, .ranks = 1}, 0);
    PlacedPayload payload(place, gradient.planned());
    const uint64_t waits_before = waits().total();
    EXPECT_EQ(gradient.encode(payload).message, "");
    EXPECT_EQ(waits().total(), waits_before) << compressor.text;
    EXPECT_EQ(payload.section(0).count, PENSTOCK_COUNT_ON_DEVICE) << compressor.text;
  }
}

// The other launches: the compensation, the begin of a fit, the selection and the update of the
// state.
TEST_F(SteeredOnADevice, AFitInStagesTakesALaunchForEachLookThatItMayTake) {
  constexpr uint64_t kOthers = 11;
  const struct {
    Method method;
    uint64_t looks;
  } cases[] = {{{"sidco"}, 11},  // up to ten stages, because the density is 0.001
               {{"sidco", {{"density", 0.3}}}, 1},
               {{"sidco", {{"stages", 1}}}, 1},
               {{"sidco", {{"stages", 2}, {"law", "gamma_pareto"}}}, 3},
               {{"sidco", {{"stages", 16}}}, 17}};
  for (auto of : cases) {
    of.method.options.push_back({"value_type", "fp32"});
    for (const int64_t n : std::vector<int64_t>{1000, kLargeSize}) {
      const Compressor compressor(of.method);
      Place place(true);
      PlacedGradient gradient(place, compressor, folded(n), 0);
      PlacedPayload payload(place, gradient.planned());
      const uint64_t before = calls(Call::kLaunch);
      EXPECT_EQ(gradient.encode(payload).message, "");
      EXPECT_EQ(calls(Call::kLaunch) - before, kOthers + of.looks) << text_of(of.method);
    }
  }
}

TEST_F(SteeredOnADevice, SayWhichOptionsHaveKernels) {
  EXPECT_EQ(device_types({"gaussiank"}), kOnBoth);
  EXPECT_EQ(device_types({"redsync"}), kOnBoth);
  EXPECT_EQ(device_types({"redsync", {{"search", "trimmed"}, {"value_type", "int8"}}}), kOnBoth);
  for (const char* law : kLaws)
    EXPECT_EQ(device_types({"sidco", {{"law", law}, {"stages", 16}, {"value_type", "int8"}}}),
              kOnBoth);
  EXPECT_EQ(device_types(kOneSign), kOnBoth);
  EXPECT_EQ(device_types({"dgc"}), kOnBoth);
  EXPECT_EQ(device_types({"dgc", {{"resample", false}}}), kOnBoth);
}

}  // namespace penstock::simulated::steered_test
