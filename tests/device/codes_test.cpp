// Quantising methods on a device, compared with the CPU. Both places run one file, one instance and
// equal calls. The bits must be equal. If a sum in floating point decides a scale, the scale may be
// the next float.
#include <testing/data.hpp>

#include <array>
#include <functional>

#include "ranks.hpp"

namespace penstock::simulated::codes_test {

class CodesOnADevice : public WellUsedDevice {};

// Methods with the bits of the CPU.
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

// Heavy tails, with zeros of both signs.
std::vector<float> gradient_of(uint64_t n, uint64_t rank) {
  std::vector<float> x = test::heavy_tailed(n, 5 + rank);
  for (uint64_t i = 0; i < n; i += 13) x[i] = i % 2 == 0 ? 0.0f : -0.0f;
  return x;
}

// A range of a larger gradient.
Case of_size(uint64_t n, uint64_t ranks, Work work = Work::kGradient) {
  return {.shape = {int64_t(n)}, .ranks = uint32_t(ranks), .work = work, .first = 4096};
}

// The payloads and states of the ranks after encode, on a device or on the CPU.
std::vector<Encoded> encoded_by_all(const Compressor& compressor, bool on_device, uint64_t n,
                                    Work work, uint32_t ranks) {
  std::vector<Encoded> all;
  for (uint32_t r = 0; r < ranks; ++r)
    all.push_back(encoded(compressor, of_size(n, ranks, work), on_device, gradient_of(n, r), r, 3));
  return all;
}
std::vector<Sent> sent_by(const Compressor& compressor, uint64_t n, uint32_t ranks) {
  std::vector<Sent> sent;
  for (Encoded& one : encoded_by_all(compressor, false, n, Work::kGradient, ranks))
    sent.push_back(std::move(one.sent));
  return sent;
}
// With several ranks, in two slices: first rank 0, then the others.
Bytes decoded(const Compressor& compressor, bool on_device, uint64_t n,
              const std::vector<Sent>& sent) {
  Place place(on_device);
  PlacedGradient gradient(place, compressor, of_size(n, sent.size()), 0);
  std::vector<uint64_t> slices{1};
  if (sent.size() > 1) slices.push_back(sent.size() - 1);
  EXPECT_EQ(gradient.receive(sent, {.slices = slices}).message, "") << compressor.text;
  return gradient.get("gradient");
}

void expect_the_same_is_sent(const Compressor& compressor, uint64_t n, Work work, uint32_t ranks) {
  const auto expected = encoded_by_all(compressor, false, n, work, ranks);
  const auto got = encoded_by_all(compressor, true, n, work, ranks);
  for (uint32_t r = 0; r < ranks; ++r) {
    SCOPED_TRACE(sdk::text(compressor.text, " ", n, " work ", int(work)));
    EXPECT_EQ(got[r].sent.kind, uint32_t{PENSTOCK_PAYLOAD_CODED});
    EXPECT_TRUE(got[r].sent == expected[r].sent);
    EXPECT_EQ(difference(got[r].left, expected[r].left), "");
  }
}

void expect_the_same_sum(const Compressor& compressor, uint64_t n, const std::vector<Sent>& sent) {
  EXPECT_TRUE(decoded(compressor, true, n, sent) == decoded(compressor, false, n, sent))
      << compressor.text << " " << n << " from " << sent.size();
}

TEST_F(CodesOnADevice, AreThoseOfTheCpu) {
  for (const Method& method : exact_methods()) {
    const Compressor compressor(method);
    for (const Work work : {Work::kGradient, Work::kKept})
      for (const uint64_t n : {0, 1, 31, 63, 64, 65, 1000})
        expect_the_same_is_sent(compressor, n, work, 2);
  }
}

TEST_F(CodesOnADevice, AreThoseOfTheCpuInLargeGradientsToo) {
  for (const Method& method : exact_methods())
    expect_the_same_is_sent(Compressor(method), kLargeSize, Work::kKept, 1);
}

TEST_F(CodesOnADevice, AreAddedToTheBitsOfTheCpu) {
  std::vector<Method> all = exact_methods();
  all.push_back({"qsgd"});
  all.push_back({"terngrad"});
  for (const Method& method : all) {
    const Compressor compressor(method);
    for (const uint64_t n : kAwkwardSizes)
      for (const uint32_t ranks : {1u, 2u, 3u}) {
        if (n > 1000 && ranks != 3) continue;
        std::vector<Sent> sent = sent_by(compressor, n, ranks);
        expect_the_same_sum(compressor, n, sent);
        if (ranks == 1) continue;
        sent[ranks - 2] = Sent{};  // absent
        expect_the_same_sum(compressor, n, sent);
      }
  }
}

// A kernel adds the payloads of 32 ranks.
TEST_F(CodesOnADevice, OfSeventyRanksAreAddedInTheirOrder) {
  for (const Method& method : {Method{"natural"}, Method{"maxmin"}}) {
    const Compressor compressor(method);
    expect_the_same_sum(compressor, 65, sent_by(compressor, 65, 70));
  }
}

// A few numbers, repeated: zeros of one sign or both, one constant, the extremes of float.
TEST_F(CodesOnADevice, OfFewNumbersAreThoseOfTheCpu) {
  const std::vector<std::vector<float>> patterns{{0.0f},
                                                 {-0.0f},
                                                 {-2.5f},
                                                 {-0.0f, 0.0f},
                                                 {1.0f, 0.0f, -0.0f},
                                                 {-0.0f, 0.0f, 1.0f, -1.0f},
                                                 {3e38f, -3e38f},
                                                 {1e-44f, -4e-44f, 8e-44f}};
  for (const Method& method : exact_methods()) {
    const Compressor compressor(method);
    for (const std::vector<float>& pattern : patterns) {
      std::vector<float> x(200);
      for (uint64_t i = 0; i < x.size(); ++i) x[i] = pattern[i % pattern.size()];
      const Case of = of_size(x.size(), 3, Work::kKept);
      const Encoded got = encoded(compressor, of, true, x),
                    expected = encoded(compressor, of, false, x);
      EXPECT_TRUE(got.sent == expected.sent) << compressor.text << " " << pattern[0];
      EXPECT_EQ(difference(got.left, expected.left), "") << compressor.text << " " << pattern[0];
    }
  }
}

// If a scale comes from a sum, the scale equals the CPU's scale or is the next float. Then a level
// may differ by one step, if the random draw lies within a few roundings of the element's fraction
// of a step. Fewer than one in a thousand elements may differ.
TEST_F(CodesOnADevice, OfSummedScalesAreWithinOneStepOfTheCpus) {
  for (const Method& method :
       {Method{"qsgd"}, Method{"qsgd", {{"bits", 8}, {"bucket", 0}}}, Method{"terngrad"}})
    for (const uint64_t n : {uint64_t{1}, uint64_t{65}, uint64_t{1000}, uint64_t(kLargeSize)}) {
      SCOPED_TRACE(text_of(method) + " " + std::to_string(n));
      const Compressor compressor(method);
      const uint64_t of_scales = method.name == "terngrad" ? 2 : 1;
      const Encoded expected = encoded_by_all(compressor, false, n, Work::kKept, 1).front();
      const Encoded got = encoded_by_all(compressor, true, n, Work::kKept, 1).front();
      for (uint64_t s = 0; s < got.sent.sections.size(); ++s)
        ASSERT_EQ(got.sent.sections[s].count, expected.sent.sections[s].count);
      const auto mine = got.sent.sections[of_scales].as<float>(),
                 others = expected.sent.sections[of_scales].as<float>();
      float largest = 0;
      for (uint64_t b = 0; b < mine.size(); ++b) {
        EXPECT_LE(std::fabs(mine[b] - others[b]), std::nextafter(others[b], INFINITY) - others[b]);
        largest = std::max(largest, others[b]);
      }
      // The decoded values of one rank are halved.
      const auto here = floats_of(decoded(compressor, false, n, {expected.sent})),
                 there = floats_of(decoded(compressor, false, n, {got.sent})),
                 left_here = floats_of(expected.left.at("work")),
                 left_there = floats_of(got.left.at("work"));
      uint64_t n_apart = 0;
      for (uint64_t i = 0; i < n; ++i) {
        ASSERT_LE(std::fabs(here[i] - there[i]), 1.0001f * largest / 2);
        n_apart += std::fabs(here[i] - there[i]) > 1e-5f * std::fabs(here[i]) ? 1 : 0;
        ASSERT_LE(std::fabs(left_there[i] - left_here[i]), 1.0001f * largest);
      }
      EXPECT_LE(n_apart, n / 1000);
    }
}

// Every invalid payload gives the error message of the CPU and adds nothing to the result.
TEST_F(CodesOnADevice, ThatCannotBeAreRefusedInTheWordsOfTheCpu) {
  const auto put = [](uint64_t section, uint64_t at, auto value) {
    return
        [=](Sent& sent) { std::memcpy(&sent.sections[section].bytes[at], &value, sizeof value); };
  };
  const auto count = [](uint64_t section, uint64_t value) {
    return [=](Sent& sent) { sent.sections[section].count = value; };
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
    const Compressor compressor(of.method);
    std::vector<Sent> sent = sent_by(compressor, 1000, 2);
    of.change(sent[1]);
    std::array<test::Outcome, 2> outcomes;
    for (const bool on_device : {false, true}) {
      Place place(on_device);
      PlacedGradient gradient(place, compressor, of_size(1000, 2), 0);
      const Bytes before = gradient.get("gradient");
      outcomes[on_device] = gradient.receive(sent);
      if (!on_device) continue;
      EXPECT_TRUE(gradient.get("gradient") == before);
    }
    EXPECT_EQ(outcomes[1].code, uint32_t{PENSTOCK_INVALID_PAYLOAD});
    EXPECT_EQ(outcomes[1].message, outcomes[0].message);
    EXPECT_TRUE(contains(outcomes[1].message, "rank 1")) << outcomes[1].message;
    EXPECT_TRUE(contains(outcomes[1].message, of.why)) << outcomes[1].message;
  }
}

// A kernel for each task: the blocks, their numbers, codes, packing; and one kernel for every sum.
TEST_F(CodesOnADevice, AreMadeByFewKernelsAndAddedByOneAndNobodyWaits) {
  const struct {
    Method method;
    uint64_t launches;
  } cases[] = {
      {{"qsgd"}, 4}, {{"natural"}, 3}, {{"terngrad"}, 3}, {{"terngrad", {{"clip", 0.0}}}, 2},
      {{"int8"}, 2}, {{"maxmin"}, 4},  {{"tbq"}, 3}};
  for (const auto& of : cases) {
    SCOPED_TRACE(text_of(of.method));
    const Compressor compressor(of.method);
    const std::vector<Sent> sent = sent_by(compressor, 1000, 3);
    Place place(true);
    PlacedGradient gradient(place, compressor, of_size(1000, 3), 0);
    gradient.set("work", gradient_of(1000, 0));
    PlacedPayload payload(place, gradient.planned());
    std::deque<PlacedPayload> brought = gradient.bring(sent);
    const uint64_t before = calls(Call::kLaunch), waited = waits().total();
    EXPECT_EQ(gradient.encode(payload).message, "");
    EXPECT_EQ(calls(Call::kLaunch) - before, of.launches);
    EXPECT_EQ(gradient.decode(brought).message, "");
    EXPECT_EQ(calls(Call::kLaunch) - before, of.launches + 1);
    EXPECT_EQ(waits().total(), waited);
  }
}

TEST_F(CodesOnADevice, SayWhereTheyWork) {
  for (const Method& method : exact_methods())
    EXPECT_EQ(device_types(method), kOnBoth) << text_of(method);
}

}  // namespace penstock::simulated::codes_test
