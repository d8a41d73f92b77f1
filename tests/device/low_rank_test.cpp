// Power-SGD and its relatives on a device, compared with the CPU. Products are sums, and a device
// adds in another order. So each step begins with the CPU's state and must end near the CPU's
// result. Between devices the bits are equal.
#include <array>

#include "ranks.hpp"

namespace penstock::simulated::low_rank_test {

class LowRankOnADevice : public WellUsedDevice {};

const std::vector<Method>& methods() {
  static const std::vector<Method> all{
      {"powersgd", {{"minimum_compression_rate", 0.0}}},
      {"powersgd", {{"minimum_compression_rate", 0.0}, {"warm_start", false}, {"rank", 1}}},
      {"acpsgd", {}},
      {"powersgd-alternating", {{"minimum_compression_rate", 0.0}, {"rank", 3}}}};
  return all;
}

std::vector<float> normal(uint64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> gauss;
  std::vector<float> values(n);
  for (float& value : values) value = gauss(random);
  return values;
}
std::vector<float> zeros(uint64_t n, uint64_t) {
  return std::vector<float>(n);
}

double norm(const std::vector<float>& values) {
  double squares = 0;
  for (const float value : values) squares += double{value} * double{value};
  return std::sqrt(squares);
}
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> apart(a.size());
  for (size_t i = 0; i < a.size(); ++i) apart[i] = a[i] - b[i];
  return norm(apart);
}

// A product of n terms is within 2^-24 (n / 8 + 82) of the sum of the terms' magnitudes in either
// place. For these shapes that is at most 7e-6 of the sum. Values that follow from a product differ
// more, by the condition of the factor. For matrices of normal numbers the condition is small.
constexpr double kNear = 2e-4;

// Differences are relative to the length of the array. A full rank leaves `work` empty, so for
// `work` they are relative to the length of an array of normal numbers.
void expect_near(const Seen& there, const Seen& here, const std::string& what) {
  ASSERT_EQ(there.size(), here.size()) << what;
  for (const auto& [name, bytes] : here) {
    const std::vector<float> got = floats_of(there.at(name)), expected = floats_of(bytes);
    ASSERT_EQ(got.size(), expected.size()) << what << ", " << name;
    const double length =
        contains(name, "work") ? std::sqrt(double(expected.size())) : norm(expected);
    EXPECT_LE(distance(got, expected), kNear * length) << what << ", " << name;
  }
}

// Calls body(compressor) for each method.
template <typename Body>
void each_method(const Body& body) {
  for (const Method& method : methods()) body(Compressor(method));
}

Case normal_numbers(const test::Shape& shape, uint32_t ranks = 2) {
  return {.shape = shape, .ranks = ranks, .draw = normal};
}

// Four steps, two of each phase: first with random factors, then with factors of earlier steps.
void expect_steps_near(const Case& of) {
  each_method([&](const Compressor& compressor) {
    Ranks there(compressor, of, true), here(compressor, of, false);
    for (uint64_t index = 0; index < 4; ++index) {
      const Seen got = there.step(index), expected = here.step(index);
      expect_near(got, expected, sdk::text(compressor.text, " of ", text_of(of), ", step ", index));
      there.hold(expected);
      for (Ranks* ranks : {&there, &here}) {
        ranks->draw("work", 1000 * (index + 1) + 100);
        ranks->draw("gradient", 1000 * (index + 1));
      }
    }
  });
}

TEST_F(LowRankOnADevice, StaysNearTheCpu) {
  Sample sample;
  const std::array<test::Shape, 7> shapes{
      {{1, 1}, {1, 33}, {33, 1}, {31, 64}, {65, 63}, {20, 3, 3, 5}, {270, 70}}};
  for (const test::Shape& shape : shapes) {
    if (shape.size() == 2 && !sample.takes()) continue;
    expect_steps_near({.shape = shape, .ranks = 1, .work = Work::kGradient, .draw = normal});
    expect_steps_near(normal_numbers(shape, 3));
  }
}

TEST_F(LowRankOnADevice, FoldsWhatMemoriesFold) {
  for (const uint32_t form :
       {PENSTOCK_FORM_AFFINE, PENSTOCK_FORM_HEAVY_BALL, PENSTOCK_FORM_NESTEROV})
    expect_steps_near({.shape = {40, 70}, .form = form, .draw = normal});
}

TEST_F(LowRankOnADevice, CountsWhoSendsNothingAsZeros) {
  expect_steps_near({.shape = {40, 30}, .ranks = 3, .absent = {2}, .draw = normal});
  expect_steps_near({.shape = {40, 30}, .ranks = 2, .absent = {0, 1}, .draw = normal});
}

TEST_F(LowRankOnADevice, SendsVectorsWithTheBitsOfTheCpu) {
  Sample sample;
  each_method([&](const Compressor& compressor) {
    for (const int64_t n : std::vector<int64_t>{0, 1, 31, 65, 1000, kLargeSize}) {
      expect_the_bits_of_the_cpu(compressor,
                                 {.shape = {n}, .work = Work::kGradient, .draw = normal});
      for (const uint32_t form : {PENSTOCK_FORM_NONE, PENSTOCK_FORM_AFFINE,
                                  PENSTOCK_FORM_HEAVY_BALL, PENSTOCK_FORM_NESTEROV})
        if (sample.takes())
          expect_the_bits_of_the_cpu(compressor, {.shape = {n}, .form = form, .draw = normal});
    }
  });
}

TEST_F(LowRankOnADevice, GivesEqualBitsInEveryRun) {
  each_method([&](const Compressor& compressor) {
    const Case of{.shape = {300, 70}, .form = PENSTOCK_FORM_AFFINE, .draw = normal};
    std::vector<Seen> first;
    for (const uint64_t seed : {1, 2, 3}) {
      begin_with_seed(seed);
      Ranks ranks(compressor, of, true);
      for (uint64_t index = 0; index < 3; ++index) {
        const Seen seen = ranks.step(index);
        if (seed == 1) first.push_back(seen);
        EXPECT_EQ(difference(seen, first[index]), "")
            << compressor.text << ", seed " << seed << ", step " << index;
      }
    }
  });
}

TEST_F(LowRankOnADevice, LeavesEqualStatesOnAllRanks) {
  each_method([&](const Compressor& compressor) {
    Ranks ranks(compressor, normal_numbers({90, 70}, 3), true);
    for (uint64_t index = 0; index < 3; ++index) {
      const Seen seen = ranks.step(index);
      for (const char* state : {"state p", "state q"})
        for (const char* rank : {"rank 1 ", "rank 2 "}) {
          const auto found = seen.find(sdk::text(rank, state));
          if (found == seen.end()) continue;  // without a warm start there is no q
          EXPECT_EQ(found->second, seen.at(sdk::text("rank 0 ", state))) << compressor.text;
        }
    }
  });
}

// A gradient of one row has rank 1, so only one column of its left factor is not zero.
TEST_F(LowRankOnADevice, DrawsDeadColumnsAnew) {
  const Case of{.shape = {40, 30}, .ranks = 1, .draw = zeros};
  std::vector<float> one_row(40 * 30);
  const std::vector<float> entries = normal(30, 5);
  std::copy(entries.begin(), entries.end(), one_row.begin() + 7 * 30);
  each_method([&](const Compressor& compressor) {
    Ranks there(compressor, of, true), here(compressor, of, false);
    for (uint64_t index = 0; index < 4; ++index) {
      for (Ranks* ranks : {&there, &here}) (*ranks)[0].set("work", one_row);
      const Seen got = there.step(index), expected = here.step(index);
      for (const char* state : {"rank 0 state p", "rank 0 state q"}) {
        if (expected.count(state) == 0) continue;  // without a warm start there is no q
        EXPECT_LE(distance(floats_of(got.at(state)), floats_of(expected.at(state))), kNear)
            << compressor.text << ", " << state << ", step " << index;
      }
      there.hold(expected);
    }
  });
}

TEST_F(LowRankOnADevice, KeepsItsFactorsWhereAllGradientsAreZero) {
  each_method([&](const Compressor& compressor) {
    Ranks ranks(compressor, normal_numbers({40, 30}), true);
    (void)ranks.step(0);
    const Seen before = ranks.step(1);
    for (const uint32_t rank : {0u, 1u}) ranks[rank].set("work", std::vector<float>(40 * 30));
    for (uint64_t index = 2; index < 4; ++index) {
      const Seen after = ranks.step(index);
      EXPECT_EQ(norm(floats_of(after.at("rank 1 gradient"))), 0) << compressor.text;
      const std::string kept =
          compressor.text.starts_with("powersgd ") ? "rank 1 state q" : "rank 1 state p";
      if (before.count(kept) == 0) continue;
      EXPECT_EQ(after.at(kept), before.at(kept)) << compressor.text;
    }
  });
}

TEST_F(LowRankOnADevice, LaunchesThirtySevenKernelsForAMatrixAndAStep) {
  const Compressor compressor({"powersgd"});
  Ranks rank(compressor, normal_numbers({40, 60}, 1), true);
  const uint64_t before = calls(Call::kLaunch);
  (void)rank.step(0);
  // Nine launches for Q and one for its product; seven for P; one for a product and one to subtract
  // it from `work`; one for the result and seventeen to keep Q. One more for give_back.
  EXPECT_EQ(calls(Call::kLaunch) - before, (9u + 1) + 7 + (1 + 1) + (1 + 17) + 1);
}

TEST_F(LowRankOnADevice, LaunchesThreeMoreForARoundOf16Bits) {
  const Compressor compressor({"powersgd", {{"value_type", "bf16"}}});
  Ranks rank(compressor, normal_numbers({40, 60}, 1), true);
  const uint64_t before = calls(Call::kLaunch);
  (void)rank.step(0);
  // A factor is rounded, its bits are widened, and so is the sum; also the own one for give_back.
  EXPECT_EQ(calls(Call::kLaunch) - before, 37u + 1 + 2 * 3 + 1);
}

TEST_F(LowRankOnADevice, RefusesASumOfAnotherSize) {
  each_method([&](const Compressor& compressor) {
    Ranks rank(compressor, normal_numbers({40, 30}, 1), true);
    Sent sent = rank[0].send();
    sent.sections[0].drop_last();
    const uint64_t before = calls(Call::kLaunch);
    const test::Outcome outcome = rank[0].receive({sent});
    EXPECT_EQ(outcome.code, uint32_t{PENSTOCK_INVALID_PAYLOAD}) << compressor.text;
    EXPECT_TRUE(contains(outcome.message, "gradient 'gradient'")) << outcome.message;
    EXPECT_EQ(calls(Call::kLaunch), before) << compressor.text;
  });
}

// ---- Factors that travel in 16 bits ----

// How many of the 16-bit numbers of two sections differ.
uint64_t n_different(const Bytes& one, const Bytes& other) {
  uint64_t n = 0;
  for (size_t i = 0; i + 1 < one.size(); i += 2)
    n += one[i] != other[i] || one[i + 1] != other[i + 1] ? 1 : 0;
  return n;
}

// Rounding has the CPU's bits. Products do not, so a number may become its other neighbour, but few
// numbers do.
void expect_nearly_the_sections(const Seen& there, const Seen& here, const std::string& what) {
  for (const auto& [name, bytes] : here) {
    if (!contains(name, "section")) continue;
    const Bytes& got = there.at(name);
    ASSERT_EQ(got.size(), bytes.size()) << what << ", " << name;
    EXPECT_LE(n_different(got, bytes), 1 + bytes.size() / 2 / 25) << what << ", " << name;
  }
}

// Calls body(compressor of 16 bits, the number of rounds of a step).
template <typename Body>
void each_narrow_method(const Body& body) {
  for (const Method& method : methods())
    for (const char* type : {"fp16", "bf16"}) {
      Method narrow = method;
      narrow.options.push_back({"value_type", type});
      body(Compressor(narrow), method.name == "powersgd" ? 2 : 1);
    }
}

TEST_F(LowRankOnADevice, TakesOutTheRoundedFactorThatItSends) {
  each_narrow_method([&](const Compressor& compressor, int n_rounds) {
    Ranks there(compressor, normal_numbers({65, 70}), true);
    Ranks here(compressor, normal_numbers({65, 70}), false);
    for (uint64_t index = 0; index < 4; ++index) {
      const std::string what = sdk::text(compressor.text, ", step ", index);
      std::vector<float> before[2];
      for (const uint32_t rank : {0u, 1u}) before[rank] = there[rank].floats("work");
      const Seen got = there.step(index), expected = here.step(index);
      expect_nearly_the_sections(got, expected, what);
      for (const uint32_t rank : {0u, 1u}) {
        const std::string whose = sdk::text("rank ", rank, " ");
        const std::vector<float> left = floats_of(got.at(whose + "work"));
        std::vector<float> sent =
            floats_of(got.at(whose + sdk::text("round ", n_rounds - 1, ": decoded own")));
        for (size_t i = 0; i < sent.size(); ++i) sent[i] = before[rank][i] - sent[i];
        // One subtraction in float; a residual of factors that are not rounded is off by 1e-4 at
        // least.
        EXPECT_LE(distance(left, sent), 1e-6 * norm(before[rank])) << what << ", rank " << rank;
      }
      there.hold(expected);
      for (Ranks* ranks : {&there, &here}) ranks->draw("work", 1000 * (index + 1) + 100);
    }
  });
}

TEST_F(LowRankOnADevice, LeavesEqualStatesFromSumsOf16Bits) {
  each_narrow_method([&](const Compressor& compressor, int) {
    Ranks ranks(compressor, {.shape = {90, 70}, .ranks = 3, .absent = {2}, .draw = normal}, true);
    for (uint64_t index = 0; index < 3; ++index) {
      const Seen seen = ranks.step(index);
      for (const char* name : {"state p", "state q", "gradient"}) {
        const auto found = seen.find(sdk::text("rank 1 ", name));
        if (found == seen.end()) continue;  // without a warm start there is no q
        EXPECT_EQ(found->second, seen.at(sdk::text("rank 0 ", name))) << compressor.text;
      }
    }
  });
}

TEST_F(LowRankOnADevice, KeepsWhatDoesNotFitTheTypeOfAFactor) {
  const Compressor compressor({"acpsgd", {{"value_type", "fp16"}, {"rank", 1}}});
  const std::vector<float> large(40, 1e5f);  // of one column, so that the known factor is 1 or -1
  for (const bool on_device : {true, false}) {
    Ranks ranks(compressor, normal_numbers({40, 1}), on_device);
    ranks[0].set("work", large);
    const Seen seen = ranks.step(0);
    for (const float left : floats_of(seen.at("rank 0 work"))) EXPECT_EQ(left, 1e5f - 32752);
  }
}

TEST_F(LowRankOnADevice, SaysWhereItWorks) {
  for (const Method& method : methods())
    EXPECT_EQ(device_types(method), kOnBoth) << text_of(method);
}

TEST_F(LowRankOnADevice, TellsTheGradientThatTheDeviceRefuses) {
  each_method([&](const Compressor& compressor) {
    Place place(true);
    PlacedGradient gradient(place, compressor, normal_numbers({40, 30}, 1), 0);
    PlacedPayload payload(place, gradient.planned());
    fail_call(Call::kLaunch, 1, 719);
    const test::Outcome outcome = gradient.encode(payload);
    EXPECT_EQ(outcome.code, uint32_t{PENSTOCK_DEVICE_ERROR}) << compressor.text;
    EXPECT_TRUE(contains(outcome.message, "a factor of gradient 'gradient'")) << outcome.message;
  });
}

}  // namespace penstock::simulated::low_rank_test
