// Quantising methods on a device, against themselves on the CPU: one file, one instance, the same
// calls in both places, and the same bits; or, where a sum in floating point decides about a scale,
// the next float at most.
#include <testing/data.hpp>
#include <testing/gtest.hpp>

#include <array>
#include <functional>

#include "coded_gradient.hpp"

namespace penstock::simulated::codes_test {

class CodesOnADevice : public SimulatedDevice {};

// Those with the bits of the CPU.
const std::vector<Method>& exact_methods() {
  static const std::vector<Method> all{
      {"qsgd", {{"norm", "max"}}},
      {"qsgd", {{"norm", "max"}, {"bits", 2}, {"bucket", 64}}},
      {"qsgd", {{"norm", "max"}, {"bits", 5}, {"bucket", 0}}},
      {"qsgd", {{"norm", "max"}, {"bits", 8}, {"bucket", 20032}}},
      {"natural", {}},
      {"terngrad", {{"clip", 0.0}}},
      {"int8", {}},
      {"int8", {{"block", 0}}},
      {"int8", {{"block", 37}}},
      {"maxmin", {}},
      {"maxmin", {{"bits", 1}, {"block", 64}}},
      {"maxmin", {{"bits", 7}, {"block", 20032}}},
      {"maxmin", {{"bits", 8}, {"rounding", "nearest"}}},
      {"tbq", {{"threshold", 0.5}}},
  };
  return all;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// Heavy tails, with zeros of both signs among them.
std::vector<float> gradient_of(uint64_t n, uint64_t rank) {
  std::vector<float> x = test::heavy_tailed(n, 5 + rank);
  for (uint64_t i = 0; i < n; i += 13) x[i] = i % 2 == 0 ? 0.0f : -0.0f;
  return x;
}

// What `ranks` ranks send, on a device or on the CPU.
std::vector<Sent> sent_by(const Method& method, bool on_device, uint64_t n, bool keeps,
                          uint32_t ranks) {
  Place place(on_device);
  CodedGradient gradient(method, place, n, keeps, ranks);
  std::vector<Sent> sent;
  for (uint32_t r = 0; r < ranks; ++r) sent.push_back(gradient.encode(gradient_of(n, r), r));
  return sent;
}
std::vector<float> decoded(const Method& method, bool on_device, uint64_t n,
                           const std::vector<Sent>& sent) {
  Place place(on_device);
  CodedGradient gradient(method, place, n, false);
  EXPECT_EQ(gradient.decode(sent).message, "") << text_of(method);
  return gradient.result();
}

void expect_the_same_is_sent(const Method& method, uint64_t n, bool keeps, uint32_t ranks) {
  const auto expected = sent_by(method, false, n, keeps, ranks);
  const auto got = sent_by(method, true, n, keeps, ranks);
  for (uint32_t r = 0; r < ranks; ++r) {
    SCOPED_TRACE(text_of(method) + " " + std::to_string(n) + (keeps ? " kept" : ""));
    EXPECT_EQ(got[r].kind, uint32_t{PENSTOCK_PAYLOAD_CODED});
    EXPECT_EQ(got[r].counts, expected[r].counts);
    EXPECT_TRUE(got[r].sections == expected[r].sections);
    EXPECT_TRUE(same_bits(got[r].work, expected[r].work));
  }
}

void expect_the_same_sum(const Method& method, uint64_t n, const std::vector<Sent>& sent) {
  EXPECT_TRUE(same_bits(decoded(method, true, n, sent), decoded(method, false, n, sent)))
      << text_of(method) << " " << n << " from " << sent.size();
}

TEST_F(CodesOnADevice, AreThoseOfTheCpu) {
  for (const Method& method : exact_methods())
    for (const bool keeps : {false, true})
      for (const uint64_t n : {0, 1, 31, 63, 64, 65, 1000})
        expect_the_same_is_sent(method, n, keeps, 2);
  for (const Report& report : reports()) ADD_FAILURE() << report.sentence;
}

TEST_F(CodesOnADevice, AreThoseOfTheCpuInLargeGradientsToo) {
  for (const Method& method : exact_methods()) expect_the_same_is_sent(method, 70001, true, 1);
}

TEST_F(CodesOnADevice, AreAddedToTheBitsOfTheCpu) {
  std::vector<Method> all = exact_methods();
  all.push_back({"qsgd", {}});
  all.push_back({"terngrad", {}});
  for (const Method& method : all)
    for (const uint64_t n : {0, 1, 31, 63, 64, 65, 1000, 70001})
      for (const uint32_t ranks : {1u, 2u, 3u}) {
        if (n > 1000 && ranks != 3) continue;
        std::vector<Sent> sent = sent_by(method, false, n, false, ranks);
        expect_the_same_sum(method, n, sent);
        if (ranks == 1) continue;
        sent[ranks - 2] = Sent{};  // absent
        expect_the_same_sum(method, n, sent);
      }
}

// A kernel takes 32 senders.
TEST_F(CodesOnADevice, OfSeventyRanksAreAddedInTheirOrder) {
  for (const Method& method : {Method{"natural", {}}, Method{"maxmin", {}}})
    expect_the_same_sum(method, 65, sent_by(method, false, 65, false, 70));
}

// A few numbers over and over: zeros of either sign and both, one number, the ends of floats.
TEST_F(CodesOnADevice, OfFewNumbersAreThoseOfTheCpu) {
  const std::vector<std::vector<float>> patterns{{0.0f},
                                                 {-0.0f},
                                                 {-2.5f},
                                                 {-0.0f, 0.0f},
                                                 {1.0f, 0.0f, -0.0f},
                                                 {-0.0f, 0.0f, 1.0f, -1.0f},
                                                 {3e38f, -3e38f},
                                                 {1e-44f, -4e-44f, 8e-44f}};
  for (const Method& method : exact_methods())
    for (const std::vector<float>& pattern : patterns) {
      std::vector<float> x(200);
      for (uint64_t i = 0; i < x.size(); ++i) x[i] = pattern[i % pattern.size()];
      std::array<Sent, 2> sent;
      for (const bool on_device : {false, true}) {
        Place place(on_device);
        sent[on_device] = CodedGradient(method, place, x.size(), true).encode(x, 0);
      }
      EXPECT_TRUE(sent[1].sections == sent[0].sections) << text_of(method) << " " << pattern[0];
      EXPECT_TRUE(same_bits(sent[1].work, sent[0].work)) << text_of(method) << " " << pattern[0];
    }
}

// Where a scale comes from a sum it is that of the CPU or the next float. Levels are then those of
// the CPU, but for elements whose share of a step lies within a few roundings of its draw: one step
// apart, and not one in a thousand of these.
TEST_F(CodesOnADevice, OfSummedScalesAreWithinOneStepOfTheCpus) {
  for (const Method& method :
       {Method{"qsgd", {}}, Method{"qsgd", {{"bits", 8}, {"bucket", 0}}}, Method{"terngrad", {}}})
    for (const uint64_t n : {1, 65, 1000, 70001}) {
      SCOPED_TRACE(text_of(method) + " " + std::to_string(n));
      const uint64_t of_scales = method.name == "terngrad" ? 2 : 1;
      const Sent expected = sent_by(method, false, n, true, 1).front();
      const Sent got = sent_by(method, true, n, true, 1).front();
      ASSERT_EQ(got.counts, expected.counts);
      float largest = 0;
      for (uint64_t b = 0; b < got.counts[of_scales]; ++b) {
        float mine, others;
        std::memcpy(&mine, got.sections[of_scales].data() + 4 * b, 4);
        std::memcpy(&others, expected.sections[of_scales].data() + 4 * b, 4);
        EXPECT_LE(std::fabs(mine - others), std::nextafter(others, INFINITY) - others);
        largest = std::max(largest, others);
      }
      const auto here = decoded(method, false, n, {expected}),
                 there = decoded(method, false, n, {got});
      uint64_t n_apart = 0;
      for (uint64_t i = 0; i < n; ++i) {
        ASSERT_LE(std::fabs(here[i] - there[i]), 1.0001f * largest);
        n_apart += std::fabs(here[i] - there[i]) > 1e-5f * std::fabs(here[i]) ? 1 : 0;
        ASSERT_LE(std::fabs(got.work[i] - expected.work[i]), 1.0001f * largest);
      }
      EXPECT_LE(n_apart, n / 1000);
    }
}

// The same sentence as on the CPU, whatever is wrong; and nothing is added.
TEST_F(CodesOnADevice, ThatCannotBeAreRefusedInTheWordsOfTheCpu) {
  const auto put = [](uint64_t section, uint64_t at, auto value) {
    return [=](Sent& sent) { std::memcpy(&sent.sections[section][at], &value, sizeof value); };
  };
  const auto count = [](uint64_t section, uint64_t value) {
    return [=](Sent& sent) { sent.counts[section] = value; };
  };
  const struct {
    Method method;
    std::function<void(Sent&)> change;
    const char* why;
  } cases[] = {
      {{"qsgd", {}}, put(1, 0, NAN), "has a step of nan"},
      {{"qsgd", {}}, put(1, 4, -1.0f), "has a step of -1"},
      {{"qsgd", {}}, put(0, 40, uint64_t{0x80}), "has level -8 at element 81"},
      {{"qsgd", {}}, count(0, 3), "expected 63"},
      {{"qsgd", {}}, count(1, UINT64_MAX), "at most 2"},
      {{"natural", {}}, put(1, 0, uint8_t{128}), "has base 128"},
      {{"natural", {}}, count(0, 5), "expected 1000"},
      {{"terngrad", {}}, put(2, 0, INFINITY), "has a scale of inf"},
      {{"terngrad", {}}, count(1, 1), "expected 16"},
      {{"int8", {}}, put(1, 0, -2.0f), "has scale -2"},
      {{"int8", {}}, count(1, 0), "expected 1"},
      {{"maxmin", {}}, put(1, 12, -1.0f), "in block 1"},
      {{"maxmin", {}}, put(1, 0, NAN), "in block 0"},
      {{"tbq", {}}, put(1, 0, 0.0f), "has threshold 0"},
      {{"tbq", {}}, put(0, 8, uint64_t{3}), "has code 3 in word 1"},
  };
  for (const auto& of : cases) {
    SCOPED_TRACE(text_of(of.method) + " " + of.why);
    std::vector<Sent> sent = sent_by(of.method, false, 1000, false, 2);
    of.change(sent[1]);
    std::array<test::Outcome, 2> outcomes;
    for (const bool on_device : {false, true}) {
      Place place(on_device);
      CodedGradient gradient(of.method, place, 1000, false);
      outcomes[on_device] = gradient.add(sent, PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST);
      if (!on_device) continue;
      EXPECT_EQ(gradient.result(), std::vector<float>(1000, 0.25f));
    }
    EXPECT_EQ(outcomes[1].code, uint32_t{PENSTOCK_INVALID_PAYLOAD});
    EXPECT_EQ(outcomes[1].message, outcomes[0].message);
    EXPECT_TRUE(contains(outcomes[1].message, "rank 1")) << outcomes[1].message;
    EXPECT_TRUE(contains(outcomes[1].message, of.why)) << outcomes[1].message;
  }
}

// A kernel for each: what blocks hold, their numbers, codes, packing; and one for any sum.
TEST_F(CodesOnADevice, AreMadeByFewKernelsAndAddedByOneAndNobodyWaits) {
  const struct {
    Method method;
    uint64_t launches;
  } cases[] = {{{"qsgd", {}}, 4},     {{"natural", {}}, 3},
               {{"terngrad", {}}, 3}, {{"terngrad", {{"clip", 0.0}}}, 2},
               {{"int8", {}}, 2},     {{"maxmin", {}}, 4},
               {{"tbq", {}}, 3}};
  for (const auto& of : cases) {
    SCOPED_TRACE(text_of(of.method));
    const std::vector<Sent> sent = sent_by(of.method, false, 1000, false, 3);
    Place place(true);
    CodedGradient gradient(of.method, place, 1000, false);
    const uint64_t before = calls(Call::kLaunch);
    (void)gradient.encode(gradient_of(1000, 0), 0);
    EXPECT_EQ(calls(Call::kLaunch) - before, of.launches);
    const uint64_t launched = calls(Call::kLaunch), waited = waits().for_stream;
    EXPECT_TRUE(gradient.add(sent, PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST).ok());
    EXPECT_EQ(calls(Call::kLaunch) - launched, 1u);
    EXPECT_EQ(waits().for_stream, waited);
  }
}

TEST_F(CodesOnADevice, SayWhereTheyWork) {
  const uint64_t both = uint64_t{1} << PENSTOCK_DEVICE_CPU | uint64_t{1} << PENSTOCK_DEVICE_CUDA;
  Place place(false);
  for (const Method& method : exact_methods())
    EXPECT_EQ(CodedGradient(method, place, 1, false).device_types(), both) << text_of(method);
}

}  // namespace penstock::simulated::codes_test
