// See cast_cases.hpp.
#include <algorithm>
#include <cmath>
#include <limits>
#include <support/cast_cases.hpp>
#include <support/coded.hpp>
#include <support/compressor_cases.hpp>
#include <support/conservation.hpp>
#include <support/quantised.hpp>

namespace penstock::test {
namespace {

const OptionSettings kStochastic{{"rounding", "stochastic"}};

// The value that a sender casts `value` of `element` to.
using Rounding = std::function<float(float value, const Sender& sender, uint64_t element)>;

Rounding to_nearest(const CastFormat& format) {
  return [format](float x, const Sender&, uint64_t) { return format.from_bits(format.to_bits(x)); };
}
Rounding by_chance(const CastFormat& format) {
  return [format](float x, const Sender& sender, uint64_t element) {
    return cast_by_chance(format.by_chance, x, drawn_word(rounding_words(sender), element));
  };
}

// Worlds of 1 to `most` ranks with every distribution; 0: one world per distribution.
void expect_sums(const CastFormat& format, const OptionSettings& options, const Rounding& rounded,
                 uint32_t most) {
  const LoadedPlugin plugin = load_plugin(format.plugin_file);
  const std::vector<Shape> shapes = awkward_vectors();
  uint32_t only = 0;
  for (const Distribution& distribution : distributions()) {
    only = only % 4 + 1;
    for (uint32_t ranks = most == 0 ? only : 1; ranks <= (most == 0 ? only : most); ++ranks) {
      CompressorRig rig({.ranks = ranks}, shapes, plugin, options);
      const RankTensors gradients =
          draw_gradients(distribution.draw, ranks, awkward_sizes(), ranks);
      const Tensors mean = rig.step(gradients);
      for (uint64_t i = 0; i < shapes.size(); ++i)
        for (uint64_t e = 0; e < mean[i].size(); ++e) {
          float sum = 0;
          for (uint32_t r = 0; r < ranks; ++r) sum += rounded(gradients[r][i][e], {1, i, 0, r}, e);
          const float total = format.from_bits(format.to_bits(sum));
          ASSERT_EQ(mean[i][e], total / static_cast<float>(ranks))
              << distribution.name << ", element " << e << " of " << mean[i].size();
        }
    }
  }
}

void expect_rest_is_kept(const CastFormat& format, const OptionSettings& options,
                         const Rounding& rounded, uint64_t steps) {
  const LoadedPlugin plugin = load_plugin(format.plugin_file);
  const std::vector<uint64_t> numels{1500, 0, 1, 31};
  for (uint32_t ranks = 1; ranks <= 4; ++ranks) {
    CompressorRig rig({.ranks = ranks, .check_mass = true}, {{30, 50}, {0}, {1}, {31}}, plugin,
                      options, load_plugin("memory", "residual"));
    RankTensors residual = draw_gradients(distributions()[4].draw, ranks, numels, 0);  // zeros
    for (uint64_t step = 0; step < steps; ++step) {
      const RankTensors gradients = draw_gradients(heavy_tailed, ranks, numels, step);
      const Tensors mean = rig.step(gradients);
      for (uint64_t i = 0; i < numels.size(); ++i)
        for (uint64_t e = 0; e < numels[i]; ++e) {
          float sum = 0;
          for (uint32_t r = 0; r < ranks; ++r) {
            float& kept = residual[r][i][e];
            kept += gradients[r][i][e];
            const float sent = rounded(kept, {1, i, step, r}, e);
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
  CompressorRig rig({.ranks = 3, .check_mass = true}, {{1000}}, plugin, options,
                    load_plugin("memory", "residual"));
  expect_conservation(rig, {"heavy_tailed", heavy_tailed});
}

}  // namespace

void expect_cast_sums(const CastFormat& format) {
  expect_sums(format, {}, to_nearest(format), 4);
}

void expect_large_casts(const CastFormat& format) {
  expect_large_gradients_equal(
      {.plugin = load_plugin(format.plugin_file)},
      each_element([&](float x) { return format.from_bits(format.to_bits(x)); }));
}

void expect_cast_keeps_rounding(const CastFormat& format) {
  expect_rest_is_kept(format, {}, to_nearest(format), 100);
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

// ---- Option combine = "gather" ----

void expect_gathered_casts_are_added_in_float32(const CastFormat& format) {
  const Rounding roundings[] = {to_nearest(format), by_chance(format)};
  for (uint32_t k = 0; k < 2 * distributions().size(); ++k) {
    const bool stochastic = k % 2 == 1, keeps = k / 2 % 2 == 1;
    const uint32_t ranks = k / 2 % 4 + 1;
    const SentOracle sent = [&](const std::vector<float>& work, const Sender& sender) {
      std::vector<float> all(work.size());
      for (uint64_t e = 0; e < all.size(); ++e) {
        const float limited = std::clamp(work[e], -format.largest, format.largest);
        all[e] = roundings[stochastic](keeps ? limited : work[e], sender, e);
      }
      return all;
    };
    expect_equals(
        {.plugin = load_plugin(format.plugin_file),
         .options = {{"combine", "gather"}, {"rounding", stochastic ? "stochastic" : "nearest"}},
         .shapes = awkward_vectors(),
         .rig = {.ranks = ranks, .ranks_per_slice = ranks == 4 ? 2u : 0u},
         .steps = 2,
         .keeps = keeps},
        sent, distributions()[k / 2]);
  }
}

void expect_gathered_casts_read_payloads_as_input(const CastFormat& format) {
  CompressorRig rig({.ranks = 1}, {{4}}, load_plugin(format.plugin_file), {{"combine", "gather"}});
  for (const uint64_t count : {uint64_t{0}, uint64_t{3}, uint64_t{5}, UINT64_MAX})
    expect_refused(
        rig, {1, 2, 3, 4}, [&](OwnedPayload& payload) { payload.section(0).count = count; },
        "elements");
}

// ---- Option rounding = "stochastic" ----

void expect_casts_by_chance_follow_their_words(const CastFormat& format) {
  expect_sums(format, kStochastic, by_chance(format), 0);
  expect_rest_is_kept(format, kStochastic, by_chance(format), 20);
}

void expect_casts_by_chance_are_unbiased(const CastFormat& format) {
  const std::vector<float> values{1.0001f, -3.14159f, 1234.56f, -1e-3f, 1e-5f, 3e-8f, -1e-9f, 0};
  expect_unbiased(load_plugin(format.plugin_file), kStochastic, values, 4000, [&](uint64_t e) {
    const double x = std::fabs(double{values[e]}), unit = unit_at(format.by_chance, x);
    const double chance = x / unit - std::floor(x / unit);
    return unit * std::sqrt(chance * (1 - chance));
  });
}

void expect_casts_by_chance_are_equal_wherever_they_run(const CastFormat& format) {
  const LoadedPlugin plugin = load_plugin(format.plugin_file);
  for (const char* combine : {"sum", "gather"}) {
    const OptionSettings options{{"rounding", "stochastic"}, {"combine", combine}};
    expect_one_result_wherever_it_runs(plugin, options);
    // A tiny number that is rounded up to 2^-24 leaves a rest with the rounding of that power.
    expect_folding_changes_no_bit(plugin, options, {{1500}, {31}}, 1e-5);
  }
}

void expect_cast_options_are_in_the_traits(const CastFormat& format) {
  const LoadedPlugin plugin = load_plugin(format.plugin_file);
  for (const char* rounding : {"nearest", "stochastic"})
    for (const char* combine : {"sum", "gather"}) {
      const penstock_compressor_traits traits =
          CompressorInstance(plugin, {{"rounding", rounding}, {"combine", combine}}).describe();
      const uint32_t chance = PENSTOCK_COMPRESSOR_RANDOM | PENSTOCK_COMPRESSOR_UNBIASED;
      const bool random = std::string(rounding) == "stochastic";
      EXPECT_EQ(traits.flags & chance, random ? chance : 0u) << rounding;
      if (random || std::string(combine) == "gather") {
        EXPECT_EQ(traits.device_types, 1u << PENSTOCK_DEVICE_CPU) << rounding << ", " << combine;
      }
    }
}

}  // namespace penstock::test
