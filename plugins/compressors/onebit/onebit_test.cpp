// 1-bit SGD against the means of both classes, the loss of one step, and payloads that no Penstock
// rank would send.
#include <support/quantised.hpp>

namespace penstock::test {
namespace {

LoadedPlugin onebit() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}

// The mean of the positive elements and the mean of the negative elements of each run. In double,
// in another order than the plugin's: see efsign_test.cpp.
std::vector<float> class_means(const std::vector<float>& x, uint64_t run) {
  std::vector<float> sent(x.size());
  for (uint64_t begin = 0; begin < x.size(); begin += run) {
    const uint64_t end = std::min<uint64_t>(begin + run, x.size());
    double sums[2] = {}, counts[2] = {};
    for (uint64_t e = begin; e < end; ++e)
      if (x[e] != 0) sums[x[e] < 0] += double{x[e]}, counts[x[e] < 0] += 1;
    for (uint64_t e = begin; e < end; ++e)
      if (x[e] != 0) sent[e] = static_cast<float>(sums[x[e] < 0] / counts[x[e] < 0]);
  }
  return sent;
}

SentOracle means_of(uint64_t run) {
  return [run](const std::vector<float>& x, const Sender&) { return class_means(x, run); };
}

TEST(OneBit, SendsTheMeansOfBothClasses) {
  expect_equals_oracle(onebit(), {}, means_of(UINT32_MAX));
}

TEST(OneBit, BucketsHaveMeansOfTheirOwn) {
  for (const int bucket : {64, 640})
    expect_equals_oracle(onebit(), {{"bucket", bucket}}, means_of(static_cast<uint64_t>(bucket)));
}

TEST(OneBit, SixteenMillionElementsEqualTheOracle) {
  expect_large_gradients_equal({.plugin = onebit()}, means_of(UINT32_MAX));
}

TEST(OneBit, NothingIsLostOver100StepsOfEveryKind) {
  expect_conserves(onebit(), {});
  expect_conserves(onebit(), {{"bucket", 128}});
}

TEST(OneBit, EveryCodePathSendsAndKeepsTheSame) {
  expect_one_result_wherever_it_runs(onebit(), {{"bucket", 192}});
}

// The means leave |x|^2 - S+^2 / n+ - S-^2 / n-, which Cauchy and Schwarz bound by
// (1 - |x|_1^2 / (n |x|^2)) |x|^2.
TEST(OneBit, LosesNoMoreThanOneScaleWould) {
  expect_the_contraction_of_one_scale(onebit());
}

TEST(OneBit, CompensatingInTheSameSweepChangesNoBit) {
  for (const int bucket : {0, 64})
    expect_folding_changes_no_bit(onebit(), {{"bucket", bucket}}, {{30, 40}, {0}, {1}, {70, 70}},
                                  2e-6);
}

TEST(OneBit, AClassWithoutElementsHasAMeanOfZero) {
  CompressorRig rig({.ranks = 1}, {{100}}, onebit());
  PayloadPointer payload = encode_once(rig, std::vector<float>(100, 3.0f));
  EXPECT_EQ(entry<float>(*payload, 3, 0), 3.0f);
  EXPECT_EQ(entry<float>(*payload, 3, 1), 0.0f);
  payload = encode_once(rig, std::vector<float>(100, 0.0f));
  EXPECT_EQ(entry<float>(*payload, 3, 0), 0.0f);
  EXPECT_EQ(entry<float>(*payload, 3, 1), 0.0f);
}

TEST(OneBit, BucketsMustBeWholeWords) {
  for (const int bucket : {1, 65, 100})
    EXPECT_THROW(CompressorRig({.ranks = 1}, {{100}}, onebit(), {{"bucket", bucket}}),
                 std::runtime_error);
}

TEST(OneBit, PayloadsThatCannotBeAreRefusedByRankAndGradient) {
  CompressorRig rig({.ranks = 1}, {{640}}, onebit(), {{"bucket", 64}});
  const std::vector<float> x = heavy_tailed(640, 1);
  const auto refused = [&](const std::function<void(OwnedPayload&)>& change, const char* why) {
    expect_refused(rig, x, change, why);
  };
  refused([](OwnedPayload& p) { p.section(0).count = 9; }, "expected 10");
  refused([](OwnedPayload& p) { p.section(3).count = 19; }, "expected 20");
  refused([](OwnedPayload& p) { entry<float>(p, 3, 4) = -1; }, "mean of positive");
  refused([](OwnedPayload& p) { entry<float>(p, 3, 5) = 1; }, "mean of negative");
  refused([](OwnedPayload& p) { entry<float>(p, 3, 19) = NAN; }, "mean of negative");
  expect_any_bytes_are_survived(rig);
}

}  // namespace
}  // namespace penstock::test
