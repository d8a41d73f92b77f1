// See cast_cases.hpp.
#include <algorithm>
#include <cmath>
#include <limits>
#include <support/cast_cases.hpp>
#include <support/coded.hpp>
#include <support/compressor_cases.hpp>
#include <support/conservation.hpp>

namespace penstock::test {

void expect_cast_sums(const CastFormat& format) {
  const LoadedPlugin plugin = load_plugin(format.plugin_file);
  const std::vector<Shape> shapes = awkward_vectors();
  for (const Distribution& distribution : distributions())
    for (uint32_t ranks = 1; ranks <= 4; ++ranks) {
      CompressorRig rig({.ranks = ranks}, shapes, plugin);
      const RankTensors gradients =
          draw_gradients(distribution.draw, ranks, awkward_sizes(), ranks);
      const Tensors mean = rig.step(gradients);
      for (uint64_t i = 0; i < shapes.size(); ++i)
        for (uint64_t e = 0; e < mean[i].size(); ++e) {
          float sum = 0;
          for (uint32_t r = 0; r < ranks; ++r)
            sum += format.from_bits(format.to_bits(gradients[r][i][e]));
          const float rounded = format.from_bits(format.to_bits(sum));
          ASSERT_EQ(mean[i][e], rounded / static_cast<float>(ranks))
              << distribution.name << ", element " << e << " of " << mean[i].size();
        }
    }
}

void expect_large_casts(const CastFormat& format) {
  expect_large_gradients_equal(
      {.plugin = load_plugin(format.plugin_file)},
      each_element([&](float x) { return format.from_bits(format.to_bits(x)); }));
}

void expect_cast_keeps_rounding(const CastFormat& format) {
  const LoadedPlugin plugin = load_plugin(format.plugin_file);
  const std::vector<uint64_t> numels{1500, 0, 1, 31};
  for (uint32_t ranks = 1; ranks <= 4; ++ranks) {
    CompressorRig rig({.ranks = ranks, .check_mass = true}, {{30, 50}, {0}, {1}, {31}}, plugin, {},
                      load_plugin("memory", "residual"));
    RankTensors residual = draw_gradients(distributions()[4].draw, ranks, numels, 0);  // zeros
    for (uint64_t step = 0; step < 100; ++step) {
      const RankTensors gradients = draw_gradients(heavy_tailed, ranks, numels, step);
      const Tensors mean = rig.step(gradients);
      for (uint64_t i = 0; i < numels.size(); ++i)
        for (uint64_t e = 0; e < numels[i]; ++e) {
          float sum = 0;
          for (uint32_t r = 0; r < ranks; ++r) {
            float& kept = residual[r][i][e];
            kept += gradients[r][i][e];
            const float sent = format.from_bits(format.to_bits(kept));
            kept -= sent;
            sum += sent;
          }
          sum = format.from_bits(format.to_bits(sum));
          ASSERT_EQ(mean[i][e], sum / static_cast<float>(ranks)) << "step " << step;
        }
    }
    for (uint32_t r = 0; r < ranks; ++r)
      for (uint64_t i = 0; i < numels.size(); ++i) ASSERT_EQ(rig.work(r, i), residual[r][i]);
  }
  CompressorRig rig({.ranks = 3, .check_mass = true}, {{1000}}, plugin, {},
                    load_plugin("memory", "residual"));
  expect_conservation(rig, {"heavy_tailed", heavy_tailed});
}

void expect_cast_overflow_is_kept(const CastFormat& format) {
  const LoadedPlugin plugin = load_plugin(format.plugin_file);
  for (uint32_t ranks = 1; ranks <= 5; ++ranks) {
    CompressorRig rig({.ranks = ranks}, {{3}}, plugin, {}, load_plugin("memory", "residual"));
    const float huge = std::min(format.largest * 1.5f, 3.4e38f);
    const RankTensors gradients(ranks, Tensors{{huge, -huge, 1}});
    const Tensors mean = rig.step(gradients);
    EXPECT_TRUE(std::isfinite(mean[0][0]) && std::isfinite(mean[0][1])) << ranks << " ranks";
    EXPECT_EQ(mean[0][2], 1.0f);
    for (uint32_t r = 0; r < ranks; ++r) {
      const float sent = rig.sent(r, 0)[0];
      EXPECT_GT(sent, 0.99f * format.largest / static_cast<float>(ranks));
      EXPECT_NEAR(double{sent} + rig.work(r, 0)[0], double{huge}, 0x1p-23 * huge);
    }
  }
}

void expect_cast_reads_payloads_as_input(const CastFormat& format) {
  const LoadedPlugin plugin = load_plugin(format.plugin_file);
  CompressorRig rig({.ranks = 2}, {{4}}, plugin);
  rig.step({{{1, 2, 3, 4}}, {{1, 2, 3, 4}}});
  OwnedPayload payload(rig.need(0).rounds[0].sections, 1);
  payload.c()->kind = PENSTOCK_PAYLOAD_DENSE;
  for (const uint64_t count : {uint64_t{0}, uint64_t{3}, uint64_t{5}, UINT64_MAX}) {
    payload.section(0).count = count;
    EXPECT_TRUE(refuses(rig, payload, "rank 1 for gradient 'gradient0'"));
  }
  payload.c()->kind = PENSTOCK_PAYLOAD_ABSENT;
  EXPECT_TRUE(decode_once(rig, payload).ok());
  const auto* out = static_cast<const float*>(rig.compressor_item(0, 0)->out.data);
  EXPECT_EQ(std::vector<float>(out, out + 4), std::vector<float>(4));
}

void expect_cast_overflows_without_memory(const CastFormat& format) {
  CompressorRig rig({.ranks = 2}, {{1}}, load_plugin(format.plugin_file));
  const float largest_float = std::numeric_limits<float>::max();
  EXPECT_TRUE(std::isinf(rig.step({{{largest_float}}, {{0}}})[0][0]));
}

}  // namespace penstock::test
