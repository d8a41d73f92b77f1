// Methods that send signs, on a device and on the CPU: what is sent has the same signs, what is
// received the same bits. Numbers that signs stand for are quotients of sums, which a device forms
// in another order: they are a rounding of float32 apart at most (sums in double of up to 70001
// terms of one sign differ by less than 2^-39 of themselves, see kernels/cuda/reduce.hpp), and what
// is taken out of work is exactly what was sent.
#include <testing/gtest.hpp>

#include <deque>
#include <functional>
#include <limits>

#include "placed_rank.hpp"

namespace penstock::simulated::signs_test {

using test::CompressorInstance;
using test::LoadedPlugin;
using test::Outcome;
using test::PlannedNeed;
using test::take;

class SignsOnADevice : public SimulatedDevice {};

enum Section : uint64_t { kNegative, kZeros, kNonzero, kNumbers };

struct Method {
  std::string name;
  test::OptionSettings options;
  bool votes;

  LoadedPlugin plugin() const { return simulated_plugin("compressor-" + name + "-simulated.so"); }
};
const std::vector<Method> kMethods{{"signsgd", {}, true},
                                   {"signum", {}, true},
                                   {"efsign", {}, false},
                                   {"onebit", {}, false},
                                   {"onebit", {{"bucket", 64}}, false},
                                   {"onebit", {{"bucket", 1024}}, false}};

void PrintTo(const Method& method, std::ostream* out) {
  *out << method.name;
}

// Whether encode leaves work as it is, takes out what it sends, or compensates before that.
enum class Work { kLeft, kKept, kFolded };

struct Case {
  Method method;
  uint64_t n;
  uint64_t zero_every;  // element; 0: none is zero, 1: all are
  Work work = Work::kKept;
  uint64_t seed = 1;

  // After a fold with beta = gamma = 1 and unscale = 1/8.
  std::vector<float> compensated() const {
    std::vector<float> values = before();
    if (work != Work::kFolded) return values;
    const std::vector<float> grads = grad();
    for (uint64_t i = 0; i < n; ++i) values[i] += grads[i] * 0.125f;
    return values;
  }
  std::vector<float> before() const { return with_zeros(drawn(n, seed)); }
  std::vector<float> grad() const { return with_zeros(drawn(n, 100 + seed)); }

 private:
  std::vector<float> with_zeros(std::vector<float> values) const {
    if (zero_every == 0) return values;
    for (uint64_t i = 0; i < n; i += zero_every) values[i] = i % 2 == 0 ? 0.0f : -0.0f;
    return values;
  }
};

void PrintTo(const Case& of, std::ostream* out) {
  *out << of.method.name << " of " << of.n << ", zeros every " << of.zero_every << ", work "
       << int(of.work);
}

struct Encoded {
  Sent sent;
  std::vector<float> work;
};

constexpr double kGradScale = 8;

Encoded encode(bool on_device, const Case& of) {
  const LoadedPlugin plugin = of.method.plugin();
  const CompressorInstance compressor(plugin, of.method.options);
  const PlannedNeed need = planned(compressor, plugin, of.n, 2);
  Place place(on_device);
  const penstock_exec exec = exec_of(place, need);
  PlacedItem placed(place, of.grad(), of.before(), of.work != Work::kLeft);
  PlacedPayload payload(place, need.rounds[0].sections);
  const penstock_step step = step_of(2, kGradScale);
  if (of.work == Work::kFolded) {
    penstock_fold fold{};
    fold.struct_size = sizeof fold;
    fold.form = PENSTOCK_FORM_AFFINE;
    fold.beta = fold.gamma = 1;
    const penstock_fold* folds = &fold;
    const penstock_item* item = &placed.item;
    penstock_payload* sent = payload.c();
    const auto* encoder = static_cast<const penstock_fold_encoder*>(
        compressor.table().extension(compressor.self(), sdk::str(PENSTOCK_FOLD_EXTENSION)));
    EXPECT_EQ(
        take(encoder->encode(compressor.self(), &exec, &step, 0, &item, 1, &sent, &folds)).message,
        "");
  } else {
    EXPECT_EQ(compressor.encode(exec, step, 0, {&placed.item}, {payload.c()}).message, "");
  }
  Encoded encoded{payload.sent(), PlacedItem::get(place, placed.item.work)};
  EXPECT_EQ(PlacedItem::get(place, placed.item.grad), of.grad());
  return encoded;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && test::same_bytes(a.data(), b.data(), a.size() * sizeof(float));
}

// One rounding of float32.
void expect_near(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (uint64_t m = 0; m < got.size(); ++m)
    EXPECT_LE(std::fabs(got[m] - expected[m]),
              std::fabs(expected[m]) * std::numeric_limits<float>::epsilon());
}

// What work holds once this payload is taken out of it.
std::vector<float> rest_of(const Case& of, const Sent& sent) {
  std::vector<float> rest = of.compensated();
  if (of.work == Work::kLeft) return rest;
  const bool mirrored = of.method.name == "efsign";
  const std::vector<float> numbers =
      of.method.votes ? std::vector<float>{1, -1} : sent.sections[kNumbers].as<float>();
  const uint64_t runs = std::max<uint64_t>(1, mirrored ? numbers.size() : numbers.size() / 2);
  const uint64_t run = of.method.options.empty()
                           ? std::max<uint64_t>(1, of.n)
                           : uint64_t(std::get<int>(of.method.options[0].second));
  for (uint64_t i = 0; i < of.n; ++i) {
    const uint64_t r = i / run;
    EXPECT_LT(r, runs);
    const float plus = mirrored ? numbers[r] : numbers[2 * r];
    const float minus = mirrored ? -numbers[r] : numbers[2 * r + 1];
    rest[i] -= rest[i] > 0 ? plus : rest[i] < 0 ? minus : 0.0f;
  }
  return rest;
}

TEST_F(SignsOnADevice, SendTheSignsOfTheCpuAndKeepExactlyTheRest) {
  for (const Method& method : kMethods)
    for (const uint64_t n : {0, 1, 31, 63, 64, 65, 1000, 70001})
      for (const uint64_t zero_every : {0, 1, 2, 100})
        for (const Work work : {Work::kLeft, Work::kKept, Work::kFolded}) {
          if (work == Work::kFolded && method.votes) continue;                // they fold nothing
          if (n > 1000 && (zero_every < 2 || work == Work::kLeft)) continue;  // to be quick
          const Case of{method, n, zero_every, work};
          SCOPED_TRACE(::testing::PrintToString(of));
          const Encoded device = encode(true, of), cpu = encode(false, of);
          ASSERT_EQ(device.sent.kind, uint32_t{PENSTOCK_PAYLOAD_CODED});
          for (const Section section : {kNegative, kZeros, kNonzero})
            ASSERT_EQ(device.sent.sections[section].bytes, cpu.sent.sections[section].bytes)
                << "section " << section;
          if (!method.votes)
            expect_near(device.sent.sections[kNumbers].as<float>(),
                        cpu.sent.sections[kNumbers].as<float>());
          ASSERT_TRUE(same_bits(device.work, rest_of(of, device.sent)));
          ASSERT_TRUE(same_bits(cpu.work, rest_of(of, cpu.sent)));
          for (const Report& report : reports()) FAIL() << report.sentence;
        }
}

TEST_F(SignsOnADevice, SendTheSameBitsInWhateverOrderTheDeviceWorks) {
  for (const Method& method : kMethods) {
    const Case of{method, 70001, 100, Work::kKept};
    const Encoded first = encode(true, of);
    for (uint64_t seed = 2; seed <= 4; ++seed) {
      begin_with_seed(seed);
      const Encoded again = encode(true, of);
      for (uint64_t s = 0; s < first.sent.sections.size(); ++s)
        ASSERT_EQ(again.sent.sections[s].bytes, first.sent.sections[s].bytes) << method.name;
      ASSERT_TRUE(same_bits(again.work, first.work)) << method.name;
    }
  }
}

// What decode leaves, call after call: `calls` is how many ranks each of them brings.
struct Decoding {
  const Method& method;
  const std::vector<Sent>& sent;
  std::vector<uint64_t> calls;
  uint64_t n;
  uint32_t flags = 0;
};

struct Decoded {
  Outcome outcome;
  std::vector<float> out;
};

Decoded decode(bool on_device, const Decoding& of) {
  const LoadedPlugin plugin = of.method.plugin();
  const CompressorInstance compressor(plugin, of.method.options);
  const auto world = uint32_t(of.sent.size());
  Place place(on_device);
  const penstock_exec exec = exec_of(place, planned(compressor, plugin, of.n, world));
  PlacedItem placed(place, drawn(of.n, 5), drawn(of.n, 6), true);
  penstock_step step = step_of(world, kGradScale);
  step.result_scale = of.flags == 0 ? 1.0 / world : 0;
  std::deque<PlacedPayload> received;
  for (uint64_t r = 0; r < of.sent.size(); ++r) received.emplace_back(place, of.sent[r], int(r));
  uint64_t next = 0;
  Outcome outcome;
  for (const uint64_t ranks : of.calls) {
    std::vector<const penstock_payload*> payloads;
    uint32_t flags = of.flags | (next == 0 ? PENSTOCK_DECODE_FIRST : 0);
    for (uint64_t r = 0; r < ranks; ++r) payloads.push_back(received[next++].c());
    if (next == of.sent.size()) flags |= PENSTOCK_DECODE_LAST;
    outcome = compressor.decode(exec, step, 0, {&placed.item}, payloads, ranks, flags);
    if (!outcome.ok()) break;
  }
  return {outcome, PlacedItem::get(place, placed.item.out)};
}

void expect_same_results(const Decoding& of) {
  const Decoded device = decode(true, of), cpu = decode(false, of);
  ASSERT_EQ(device.outcome.message, "");
  ASSERT_EQ(cpu.outcome.message, "");
  ASSERT_TRUE(same_bits(device.out, cpu.out))
      << of.method.name << " of " << of.n << " on " << of.sent.size();
  for (const Report& report : reports()) FAIL() << report.sentence;
}

std::vector<Sent> sent_by(const Method& method, uint64_t n, uint64_t ranks) {
  std::vector<Sent> sent;
  for (uint64_t r = 0; r < ranks; ++r)
    sent.push_back(
        encode(false, {method, n, r % 3 == 2 ? 0 : 2 + 98 * (r % 3), Work::kKept, r}).sent);
  return sent;
}

TEST_F(SignsOnADevice, AddUpAndVoteToTheBitsOfTheCpu) {
  for (const Method& method : kMethods)
    for (const uint64_t n : {0, 1, 31, 63, 64, 65, 1000, 70001})
      for (const uint64_t ranks : {1, 2, 3}) {
        std::vector<Sent> sent = sent_by(method, n, ranks);
        expect_same_results({method, sent, {ranks}, n});
        if (!method.votes && ranks == 3) expect_same_results({method, sent, {1, 2}, n});
        sent[ranks / 2].kind = PENSTOCK_PAYLOAD_ABSENT;
        expect_same_results({method, sent, {ranks}, n});
      }
}

TEST_F(SignsOnADevice, TakeMoreRanksThanOneKernelDoes) {
  for (const Method& method : kMethods) {
    expect_same_results({method, sent_by(method, 1000, 32), {32}, 1000});
    expect_same_results({method, sent_by(method, 1000, 33), {33}, 1000});
    expect_same_results({method, sent_by(method, 1000, 67), {67}, 1000});
  }
}

TEST_F(SignsOnADevice, TurnOnesOwnPayloadIntoWhatItStandsFor) {
  for (const Method& method : kMethods)
    expect_same_results({method, sent_by(method, 1000, 1), {1}, 1000, PENSTOCK_DECODE_OWN});
}

// Work that is the gradient itself carries the loss scale: so does a vote.
TEST_F(SignsOnADevice, VoteInTheUnitsOfWork) {
  const Method& method = kMethods[0];
  const CompressorInstance compressor(method.plugin());
  Place place(true);
  PlacedItem placed(place, drawn(130, 5), {}, false);
  placed.item.work = placed.item.grad;
  const std::vector<Sent> sent = sent_by(method, 130, 1);
  PlacedPayload payload(place, sent[0], 0);
  const penstock_step step = step_of(1, kGradScale);
  ASSERT_EQ(
      compressor
          .decode(exec_of(place, planned(compressor, method.plugin(), 130, 1)), step, 0,
                  {&placed.item}, {payload.c()}, 1, PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST)
          .message,
      "");
  const std::vector<float> signs = Case{method, 130, 2, Work::kKept, 0}.before();
  const std::vector<float> out = PlacedItem::get(place, placed.item.out);
  for (uint64_t i = 0; i < 130; ++i)
    ASSERT_EQ(out[i], signs[i] > 0 ? 8 : signs[i] < 0 ? -8 : 0) << i;
}

// A payload with `change` done to it is refused on the device in the words of the CPU.
void expect_refused(const Method& method, uint64_t zero_every,
                    const std::function<void(Sent&)>& change, const std::string& why) {
  SCOPED_TRACE(method.name + ": " + why);
  std::vector<Sent> sent{encode(false, {method, 640, zero_every}).sent};
  ASSERT_EQ(decode(true, {method, sent, {1}, 640}).outcome.message, "");
  change(sent[0]);
  const Outcome device = decode(true, {method, sent, {1}, 640}).outcome;
  const Outcome cpu = decode(false, {method, sent, {1}, 640}).outcome;
  EXPECT_EQ(device.code, uint32_t{PENSTOCK_INVALID_PAYLOAD});
  EXPECT_EQ(device.message, cpu.message);
  EXPECT_TRUE(contains(device.message, why)) << device.message;
}

TEST_F(SignsOnADevice, RefuseZerosThatCannotBe) {
  const auto zeros = [](std::vector<uint32_t> positions) {
    return [=](Sent& sent) { sent.sections[kZeros].set(positions); };
  };
  for (const Method& method : kMethods) {
    expect_refused(method, 100, zeros({3, 3}), "expected them to ascend");
    expect_refused(method, 100, zeros({7, 3}), "expected them to ascend");
    expect_refused(method, 100, zeros({3, 640}), "has a zero at 640, expected below 640");
    expect_refused(method, 2, zeros({3}), "both as a list of 1 and as bits");
    expect_refused(
        method, 2, [](Sent& sent) { sent.sections[kNonzero].bytes.resize(72); },
        "has 9 words of nonzero bits");
    expect_refused(
        method, 2, [](Sent& sent) { sent.sections[kNegative].bytes.resize(72); }, "expected 10");
  }
}

TEST_F(SignsOnADevice, RefuseNumbersThatCannotBe) {
  const auto number = [](uint64_t index, float value) {
    return [=](Sent& sent) {
      std::vector<float> numbers = sent.sections[kNumbers].as<float>();
      numbers[index] = value;
      sent.sections[kNumbers].set(numbers);
    };
  };
  const Method &efsign = kMethods[2], &onebit = kMethods[4];
  for (const float scale : {-1.0f, std::nanf(""), INFINITY})
    expect_refused(efsign, 100, number(0, scale), "expected a finite one of at least 0");
  expect_refused(onebit, 100, number(6, -1.0f), "as mean of positive elements");
  expect_refused(onebit, 100, number(7, 1.0f), "as mean of negative elements");
  expect_refused(onebit, 100, number(7, std::nanf("")), "as mean of negative elements");
}

TEST_F(SignsOnADevice, SayThatTheyWorkThere) {
  const uint64_t both = uint64_t{1} << PENSTOCK_DEVICE_CPU | uint64_t{1} << PENSTOCK_DEVICE_CUDA;
  for (const Method& method : kMethods)
    EXPECT_EQ(CompressorInstance(method.plugin(), method.options).describe().device_types, both);
  EXPECT_EQ(test::MemoryInstance(simulated_plugin("memory-momentum-simulated.so"))
                .describe()
                .device_types,
            both);
}

// Averages, copies and what drain leaves, after three steps.
std::vector<std::vector<float>> averaged(bool on_device, uint64_t n) {
  const test::MemoryInstance memory(simulated_plugin("memory-momentum-simulated.so"),
                                    {{"momentum", 0.7}});
  Place place(on_device);
  PlacedItem placed(place, drawn(n, 1), std::vector<float>(n), false);
  placed.item.work = tensor_of(place.put(std::vector<float>(n, NAN)), n, place.exec());
  const penstock_step step = step_of(1, 3);
  std::vector<std::vector<float>> seen;
  for (int s = 0; s < 3; ++s) {
    EXPECT_EQ(memory.compensate(place.exec(), step, {&placed.item}, nullptr).message, "");
    seen.push_back(PlacedItem::get(place, placed.state));
    seen.push_back(PlacedItem::get(place, placed.item.work));
  }
  EXPECT_EQ(memory.drain(place.exec(), {&placed.item}).message, "");
  seen.push_back(PlacedItem::get(place, placed.state));
  return seen;
}

TEST_F(SignsOnADevice, AverageGradientsToTheBitsOfTheCpu) {
  for (const uint64_t n : {0, 1, 31, 63, 64, 65, 1000, 70001}) {
    const auto device = averaged(true, n), cpu = averaged(false, n);
    for (uint64_t s = 0; s < cpu.size(); ++s)
      ASSERT_TRUE(same_bits(device[s], cpu[s])) << n << " elements, array " << s;
    for (const Report& report : reports()) FAIL() << report.sentence;
  }
}

TEST_F(SignsOnADevice, NeitherWaitNorAllocateInAStep) {
  for (const Method& method : kMethods) {
    const LoadedPlugin plugin = method.plugin();
    const CompressorInstance compressor(plugin, method.options);
    const PlannedNeed need = planned(compressor, plugin, 5000, 1);
    Place place(true);
    const penstock_exec exec = exec_of(place, need);
    PlacedItem placed(place, drawn(5000, 1), drawn(5000, 2), true);
    PlacedPayload payload(place, need.rounds[0].sections);
    const std::vector<Sent> sent = sent_by(method, 5000, 1);
    PlacedPayload received(place, sent[0], 0);
    const uint64_t waits_before = waits().total(), made_before = calls(Call::kAllocate);
    const penstock_step step = step_of(1);
    (void)compressor.encode(exec, step, 0, {&placed.item}, {payload.c()});
    (void)compressor.decode(exec, step, 0, {&placed.item}, {received.c()}, 1,
                            PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST);
    EXPECT_GT(queued(), 0u);
    EXPECT_EQ(waits().total(), waits_before) << method.name;
    EXPECT_EQ(calls(Call::kAllocate), made_before) << method.name;
    (void)cudaDeviceSynchronize();
  }
}

}  // namespace penstock::simulated::signs_test
