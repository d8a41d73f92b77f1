// Walks steps of the built plugin on simulated ranks. The expected values come from plain loops
// over the definition, not from the plugin's own code.
#include <testing/checks.hpp>
#include <testing/gtest.hpp>
#include <testing/rig.hpp>

using namespace penstock::test;

namespace {

CompressorRig rig_of(int stride, int64_t numel, uint32_t ranks = 1) {
  return CompressorRig({.ranks = ranks, .check_mass = true, .keep = true}, {{numel}},
                       load_plugin(PENSTOCK_PLUGIN_FILE), {{"stride", stride}});
}

// 1, 2, 3, ...
std::vector<float> counted(int64_t numel) {
  std::vector<float> values(static_cast<uint64_t>(numel));
  for (uint64_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
  return values;
}

TEST(Template, DoesWhatEveryCompressorMust) {
  for (const int stride : {1, 2, 100})
    run_checks(load_plugin(PENSTOCK_PLUGIN_FILE), {{"stride", stride}});
}

TEST(Template, SendsEveryStrideThEntryAndTakesItOutOfWork) {
  for (const int64_t numel : {0, 1, 7, 64, 1001})
    for (const int stride : {1, 3, 4, 100}) {
      CompressorRig rig = rig_of(stride, numel);
      const std::vector<float> gradient = counted(numel);
      for (uint64_t step = 0; step < 2 * uint64_t(stride) + 1; ++step) {
        const Tensors result = rig.step({{gradient}});
        const std::vector<float> left = rig.work(0, 0);
        for (uint64_t i = 0; i < gradient.size(); ++i) {
          const bool sent = i % uint64_t(stride) == step % uint64_t(stride);
          ASSERT_EQ(result[0][i], sent ? gradient[i] : 0.0f) << "entry " << i << " step " << step;
          ASSERT_EQ(left[i], sent ? 0.0f : gradient[i]) << "entry " << i << " step " << step;
        }
      }
    }
}

TEST(Template, PayloadsOfTwoRanksAddToThePayloadOfTheSum) {
  CompressorRig rig = rig_of(4, 1001, 2);
  const std::vector<float> one = counted(1001), other(1001, 1000);  // sums below 2^24: exact
  const Tensors mean = rig.step({{one}, {other}});
  for (uint64_t i = 0; i < 1001; ++i)
    ASSERT_EQ(mean[0][i], i % 4 == 0 ? (one[i] + 1000) / 2 : 0.0f);
}

TEST(Template, RefusesAPayloadOfAnotherCount) {
  CompressorRig rig = rig_of(4, 1001);
  for (const uint64_t count : {250, 252}) {
    const PayloadPointer payload = dense_payload(std::vector<float>(count), -1);
    payload->c()->kind = PENSTOCK_PAYLOAD_CODED;
    const Outcome outcome =
        rig.compressor(0).decode(rig.exec(), rig.step_facts(0), 0, {rig.compressor_item(0, 0)},
                                 {payload->c()}, 1, PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST);
    EXPECT_EQ(outcome.code, uint32_t{PENSTOCK_INVALID_PAYLOAD});
    EXPECT_NE(outcome.message.find("gradient0"), std::string::npos) << "it names the gradient";
  }
}

TEST(Template, AnAbsentPayloadCountsAsZeros) {
  CompressorRig rig = rig_of(1, 7, 2);
  const Tensors mean = rig.step({{counted(7)}, {counted(7)}}, {.joined = {1}});
  for (uint64_t i = 0; i < 7; ++i) EXPECT_EQ(mean[0][i], float(i + 1) / 2);
}

}  // namespace
