// Methods that send signs, on a device and on the CPU. The sent signs are equal, and decoded values
// have equal bits. The numbers for the signs are quotients of sums, and a device adds in another
// order. They differ by at most one rounding of float32, because sums in double of up to 70,001
// terms of one sign differ by less than 2^-39 relative to the sum (kernels/cuda/reduce.hpp). Encode
// subtracts exactly the sent values from `work`.
#include <functional>
#include <limits>

#include "ranks.hpp"

namespace penstock::simulated::signs_test {

class SignsOnADevice : public WellUsedDevice {};

enum Section : uint64_t { kNegative, kZeros, kNonzero, kNumbers };

const std::vector<Method> kMethods{{"signsgd"},
                                   {"signum"},
                                   {"efsign"},
                                   {"onebit"},
                                   {"onebit", {{"bucket", 64}}},
                                   {"onebit", {{"bucket", 1024}}}};

bool votes(const Method& method) {
  return method.name == "signsgd" || method.name == "signum";
}

// Encode leaves `work` unchanged, subtracts the sent values, or first compensates and then
// subtracts.
enum class Way { kLeft, kKept, kFolded };

struct Input {
  Method method;
  int64_t n;
  uint64_t zero_every;  // every n-th element is zero; 0: no zeros, 1: only zeros
  Way way = Way::kKept;
  uint64_t seed = 1;

  Case layout() const {
    return {.shape = {n},
            .work = way == Way::kLeft ? Work::kLeft : Work::kKept,
            .form = way == Way::kFolded ? PENSTOCK_FORM_AFFINE : PENSTOCK_FORM_NONE,
            .beta = 1,
            .gamma = 1};
  }
  // The loss scale is 8, so gradients are 8 times their true value.
  std::vector<float> compensated() const {
    std::vector<float> values = before();
    if (way != Way::kFolded) return values;
    const std::vector<float> grads = grad();
    for (uint64_t i = 0; i < values.size(); ++i) values[i] += grads[i] * 0.125f;
    return values;
  }
  std::vector<float> before() const { return with_zeros(seed); }
  std::vector<float> grad() const { return with_zeros(100 + seed); }

 private:
  std::vector<float> with_zeros(uint64_t of_seed) const {
    std::vector<float> values = drawn(uint64_t(n), of_seed);
    if (zero_every == 0) return values;
    for (uint64_t i = 0; i < values.size(); i += zero_every) values[i] = i % 2 == 0 ? 0.0f : -0.0f;
    return values;
  }
};

void PrintTo(const Input& of, std::ostream* out) {
  *out << text_of(of.method) << " of " << of.n << ", zeros every " << of.zero_every << ", way "
       << int(of.way);
}

Encoded encode(bool on_device, const Input& of) {
  const Compressor compressor(of.method);
  Place place(on_device);
  PlacedGradient gradient(place, compressor, of.layout(), 0);
  gradient.set("gradient", of.grad());
  gradient.set("work", of.before());
  Encoded encoded{gradient.send(), gradient.all()};
  EXPECT_TRUE(encoded.left.at("gradient") == bytes_of(of.grad()));
  return encoded;
}

// The difference is at most one rounding of float32.
void expect_near(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (uint64_t m = 0; m < got.size(); ++m)
    EXPECT_LE(std::fabs(got[m] - expected[m]),
              std::fabs(expected[m]) * std::numeric_limits<float>::epsilon());
}

// The rest in `work` after this payload is subtracted.
Bytes rest_of(const Input& of, const Sent& sent) {
  std::vector<float> rest = of.compensated();
  if (of.way == Way::kLeft) return bytes_of(rest);
  const bool mirrored = of.method.name == "efsign";
  const std::vector<float> numbers =
      votes(of.method) ? std::vector<float>{1, -1} : sent.sections[kNumbers].as<float>();
  const uint64_t runs = std::max<uint64_t>(1, mirrored ? numbers.size() : numbers.size() / 2);
  const uint64_t run = of.method.options.empty()
                           ? std::max<uint64_t>(1, rest.size())
                           : uint64_t(std::get<int>(of.method.options[0].second));
  for (uint64_t i = 0; i < rest.size(); ++i) {
    const uint64_t r = i / run;
    EXPECT_LT(r, runs);
    const float plus = mirrored ? numbers[r] : numbers[2 * r];
    const float minus = mirrored ? -numbers[r] : numbers[2 * r + 1];
    rest[i] -= rest[i] > 0 ? plus : rest[i] < 0 ? minus : 0.0f;
  }
  return bytes_of(rest);
}

TEST_F(SignsOnADevice, SendTheSignsOfTheCpuAndKeepExactlyTheRest) {
  for (const Method& method : kMethods)
    for (const int64_t n : kAwkwardSizes)
      for (const uint64_t zero_every : {0, 1, 2, 100})
        for (const Way way : {Way::kLeft, Way::kKept, Way::kFolded}) {
          if (way == Way::kFolded && votes(method)) continue;               // not folded
          if (n > 1000 && (zero_every < 2 || way == Way::kLeft)) continue;  // saves time
          const Input of{method, n, zero_every, way};
          SCOPED_TRACE(::testing::PrintToString(of));
          const Encoded device = encode(true, of), cpu = encode(false, of);
          ASSERT_EQ(device.sent.kind, uint32_t{PENSTOCK_PAYLOAD_CODED});
          for (const Section section : {kNegative, kZeros, kNonzero})
            ASSERT_TRUE(device.sent.sections[section] == cpu.sent.sections[section])
                << "section " << section;
          if (!votes(method))
            expect_near(device.sent.sections[kNumbers].as<float>(),
                        cpu.sent.sections[kNumbers].as<float>());
          ASSERT_TRUE(device.left.at("work") == rest_of(of, device.sent));
          ASSERT_TRUE(cpu.left.at("work") == rest_of(of, cpu.sent));
        }
}

TEST_F(SignsOnADevice, SendTheSameBitsInWhateverOrderTheDeviceWorks) {
  for (const Method& method : kMethods) {
    const Input of{method, kLargeSize, 100};
    const Encoded first = encode(true, of);
    for (uint64_t seed = 2; seed <= 4; ++seed) {
      begin_with_seed(seed);
      const Encoded again = encode(true, of);
      ASSERT_TRUE(again.sent == first.sent) << method.name;
      ASSERT_EQ(difference(again.left, first.left), "") << method.name;
    }
  }
}

struct Decoded {
  test::Outcome outcome;
  Bytes out;
};
Decoded decode(bool on_device, const Method& method, const std::vector<Sent>& sent, int64_t n,
               const Reception& how = {}) {
  const Compressor compressor(method);
  Place place(on_device);
  PlacedGradient gradient(place, compressor, {.shape = {n}, .ranks = uint32_t(sent.size())}, 0);
  const test::Outcome outcome = gradient.receive(sent, how);
  return {outcome, gradient.get("gradient")};
}

void expect_same_results(const Method& method, const std::vector<Sent>& sent, int64_t n,
                         const Reception& how = {}) {
  const Decoded device = decode(true, method, sent, n, how),
                cpu = decode(false, method, sent, n, how);
  ASSERT_EQ(device.outcome.message, "");
  ASSERT_EQ(cpu.outcome.message, "");
  ASSERT_TRUE(device.out == cpu.out) << text_of(method) << " of " << n << " on " << sent.size();
}

std::vector<Sent> sent_by(const Method& method, int64_t n, uint64_t ranks) {
  std::vector<Sent> sent;
  for (uint64_t r = 0; r < ranks; ++r)
    sent.push_back(
        encode(false, {method, n, r % 3 == 2 ? 0 : 2 + 98 * (r % 3), Way::kKept, r}).sent);
  return sent;
}

TEST_F(SignsOnADevice, AddUpAndVoteToTheBitsOfTheCpu) {
  for (const Method& method : kMethods)
    for (const int64_t n : kAwkwardSizes)
      for (const uint64_t ranks : {1, 2, 3}) {
        std::vector<Sent> sent = sent_by(method, n, ranks);
        expect_same_results(method, sent, n);
        if (!votes(method) && ranks == 3) expect_same_results(method, sent, n, {.slices = {1, 2}});
        sent[ranks / 2].kind = PENSTOCK_PAYLOAD_ABSENT;
        expect_same_results(method, sent, n);
      }
}

TEST_F(SignsOnADevice, TakeMoreRanksThanOneKernelDoes) {
  for (const Method& method : kMethods)
    for (const uint64_t ranks : {32, 33, 67})
      expect_same_results(method, sent_by(method, 1000, ranks), 1000);
}

TEST_F(SignsOnADevice, TurnOnesOwnPayloadIntoWhatItStandsFor) {
  for (const Method& method : kMethods)
    expect_same_results(method, sent_by(method, 1000, 1), 1000, {.flags = PENSTOCK_DECODE_OWN});
}

// If `work` is the gradient itself, the values and the vote have the loss scale.
TEST_F(SignsOnADevice, VoteInTheUnitsOfWork) {
  const Method& method = kMethods[0];
  const Compressor compressor(method);
  Ranks rank(compressor, {.shape = {130}, .ranks = 1, .work = Work::kGradient}, true);
  ASSERT_EQ(rank[0].receive(sent_by(method, 130, 1)).message, "");
  const std::vector<float> signs = Input{method, 130, 2, Way::kKept, 0}.before();
  const std::vector<float> out = rank[0].floats("gradient");
  for (uint64_t i = 0; i < 130; ++i)
    ASSERT_EQ(out[i], signs[i] > 0 ? 8 : signs[i] < 0 ? -8 : 0) << i;
}

// A payload, changed by `change`, is refused on the device with the message of the CPU.
void expect_refused(const Method& method, uint64_t zero_every,
                    const std::function<void(Sent&)>& change, const std::string& why) {
  SCOPED_TRACE(method.name + ": " + why);
  std::vector<Sent> sent{encode(false, {method, 640, zero_every}).sent};
  ASSERT_EQ(decode(true, method, sent, 640).outcome.message, "");
  change(sent[0]);
  const test::Outcome device = decode(true, method, sent, 640).outcome;
  const test::Outcome cpu = decode(false, method, sent, 640).outcome;
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
        method, 2, [](Sent& sent) { sent.sections[kNonzero].drop_last(); },
        "has 9 words of nonzero bits");
    expect_refused(
        method, 2, [](Sent& sent) { sent.sections[kNegative].drop_last(); }, "expected 10");
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
    expect_refused(efsign, 100, number(0, scale), "expected a finite scale of at least 0");
  expect_refused(onebit, 100, number(6, -1.0f), "as mean of positive elements");
  expect_refused(onebit, 100, number(7, 1.0f), "as mean of negative elements");
  expect_refused(onebit, 100, number(7, std::nanf("")), "as mean of negative elements");
}

TEST_F(SignsOnADevice, SayThatTheyWorkThere) {
  for (const Method& method : kMethods) EXPECT_EQ(device_types(method), kOnBoth);
  EXPECT_EQ(test::MemoryInstance(simulated_plugin("memory", "momentum")).describe().device_types,
            kOnBoth);
}

// Averages, copies and the values after drain, after three steps.
std::vector<Bytes> averaged(bool on_device, int64_t n) {
  const test::LoadedPlugin momentum = simulated_plugin("memory", "momentum");
  const test::MemoryInstance memory(momentum, {{"momentum", 0.7}});
  const Compressor compressor({"signum"});
  const std::vector<float> zeros(static_cast<uint64_t>(n));
  Place place(on_device);
  PlacedGradient gradient(place, compressor, {.shape = {n}, .work = Work::kLeft}, 0);
  gradient.plan(memory, momentum);
  gradient.set("work", std::vector<float>(zeros.size(), NAN));
  float* average = place.put(zeros);
  const penstock_tensor state = tensor_of(average, zeros.size(), place.exec());
  const penstock_tensor* states = &state;
  penstock_item item = gradient.item();
  item.states = &states;
  item.n_states = 1;
  std::vector<Bytes> seen;
  for (int s = 0; s < 3; ++s) {
    EXPECT_EQ(memory.compensate(place.exec(), gradient.step(), {&item}, nullptr).message, "");
    seen.push_back(bytes_of(place.get(average, zeros.size())));
    seen.push_back(gradient.get("work"));
  }
  EXPECT_EQ(memory.drain(place.exec(), {&item}).message, "");
  seen.push_back(bytes_of(place.get(average, zeros.size())));
  return seen;
}

TEST_F(SignsOnADevice, AverageGradientsToTheBitsOfTheCpu) {
  for (const int64_t n : kAwkwardSizes) {
    const auto device = averaged(true, n), cpu = averaged(false, n);
    for (uint64_t s = 0; s < cpu.size(); ++s)
      ASSERT_TRUE(device[s] == cpu[s]) << n << " elements, array " << s;
  }
}

TEST_F(SignsOnADevice, NeitherWaitNorAllocateInAStep) {
  for (const Method& method : kMethods) {
    const Compressor compressor(method);
    const std::vector<Sent> sent = sent_by(method, 5000, 1);
    Place place(true);
    PlacedGradient gradient(place, compressor, {.shape = {5000}, .ranks = 1}, 0);
    PlacedPayload payload(place, gradient.planned());
    std::deque<PlacedPayload> received = gradient.bring(sent);
    const uint64_t waits_before = waits().total(), made_before = calls(Call::kAllocate);
    EXPECT_EQ(gradient.encode(payload).message, "");
    EXPECT_EQ(gradient.decode(received).message, "");
    EXPECT_GT(queued(), 0u);
    EXPECT_EQ(waits().total(), waits_before) << method.name;
    EXPECT_EQ(calls(Call::kAllocate), made_before) << method.name;
    (void)cudaDeviceSynchronize();
  }
}

}  // namespace penstock::simulated::signs_test
