// A fixed threshold against plain loops: the entries that are sent, the entries that wait, and the
// unit of the threshold.
#include <support/contraction.hpp>
#include <support/steered_oracle.hpp>

namespace penstock::test {
namespace {

LoadedPlugin plugin() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin residual() {
  return load_plugin("memory", "residual");
}

// Selects all entries that reach the threshold; if these are more than the capacity, the largest.
SentOracle above(float threshold, double capacity, const std::string& value_type = "auto") {
  return [=](const std::vector<float>& x, const Sender&) {
    const uint64_t room = kept_of(x.size(), capacity);
    return only_as(value_type, x, SteeredOracle::reaching(x, threshold, room), room);
  };
}

Comparison comparison(float threshold, double capacity, const std::vector<uint64_t>& numels,
                      uint64_t steps, uint32_t ranks) {
  return {.plugin = plugin(),
          .options = {{"threshold", double{threshold}}, {"capacity", capacity}},
          .shapes = vectors(numels),
          .rig = {.ranks = ranks, .ranks_per_slice = ranks / 2, .check_mass = true},
          .steps = steps};
}

TEST(Threshold, EqualsTheOracleOver100Steps) {
  for (const Distribution& distribution : distributions())
    for (const uint32_t ranks : {1, 4})
      expect_equals(comparison(2.5f, 0.1, {160, 0, 1, 31, 63}, 100, ranks), above(2.5f, 0.1),
                    distribution);
}

TEST(Threshold, AwkwardSizesEqualTheOracle) {
  for (const Distribution& distribution : distributions())
    for (const double capacity : {0.01, 1.0})
      expect_equals(comparison(1.0f, capacity, awkward_sizes(), 2, 1), above(1.0f, capacity),
                    distribution);
}

TEST(Threshold, NarrowValuesEqualTheOracleAndLeaveTheirRoundingInWork) {
  for (const char* type : {"fp16", "bf16", "int8", "sign"})
    for (const Distribution& distribution : distributions()) {
      Comparison narrow = comparison(2.5f, 0.1, {160, 0, 1, 31, 63}, 40, 3);
      if (std::string(type) == "sign") narrow.rig.mass_tolerance = 0x1p-23;
      narrow.options.push_back({"value_type", type});
      expect_equals(narrow, above(2.5f, 0.1, type), distribution);
    }
}

TEST(Threshold, SixteenMillionElementsEqualTheOracle) {
  expect_large_gradients_equal(comparison(0.5f, 0.1, {}, 1, 1), above(0.5f, 0.1));
}

TEST(Threshold, BeyondTheCapacityTheLargestGoAndTiesKeepTheLowerIndex) {
  CompressorRig rig({.ranks = 1}, {{8}}, plugin(), {{"threshold", 1}, {"capacity", 0.375}},
                    residual());
  EXPECT_EQ(rig.step({{{2, -3, 0.5, 2, -2, 2, 0, 1}}}), (Tensors{{2, -3, 0, 2, 0, 0, 0, 0}}));
  EXPECT_EQ(rig.work(0, 0), (std::vector<float>{0, 0, 0.5, 0, -2, 2, 0, 1}));
}

TEST(Threshold, IsInUnitsOfTheTrueGradientWhateverTheLossScale) {
  for (const bool with_memory : {true, false}) {
    CompressorRig rig({.ranks = 1}, {{4}}, plugin(), {{"threshold", 1}, {"capacity", 1}},
                      with_memory ? std::optional(residual()) : std::nullopt);
    for (const double scale : {1024.0, 0.5})
      EXPECT_EQ(rig.step({{{2, 0.5, -1, 0.75}}}, {.grad_scale = scale})[0][0], 2) << scale;
    EXPECT_EQ(rig.sent_count(0, 0), with_memory ? 4u : 2u) << "0.5 and 0.75 have piled up";
  }
}

TEST(Threshold, WhereNothingPassesNothingIsSent) {
  CompressorRig rig({.ranks = 2}, {{100}}, plugin(), {{"threshold", 10}}, residual());
  const std::vector<float> small(100, 0.25f);
  EXPECT_EQ(rig.step({{small}, {small}}), (Tensors{std::vector<float>(100)}));
  EXPECT_EQ(rig.sent_count(0, 0), 0u);
}

TEST(Threshold, NothingIsLostOver100StepsOfEveryKindAndValueType) {
  expect_nothing_is_lost(plugin(), {{"threshold", 1.5}});
}

TEST(Threshold, CompensatingInTheSameSweepChangesNoBit) {
  expect_folding_changes_no_bit(plugin(), {{"threshold", 1.5}}, {{30, 40}, {0}, {1}, {70, 70}});
}

TEST(Threshold, PayloadsAreInput) {
  CompressorRig rig({.ranks = 2}, {{16}}, plugin(), {{"capacity", 0.5}});
  expect_sparse_payloads_are_input(rig);
}

TEST(Threshold, NarrowPayloadsAreInput) {
  for (const char* type : {"fp16", "bf16", "int8"}) {
    CompressorRig rig({.ranks = 2}, {{16}}, plugin(), {{"capacity", 0.5}, {"value_type", type}});
    expect_narrow_payloads_are_input(rig);
  }
}

TEST(Threshold, LeavesAtMostTheShareThatWasNotSent) {
  for (const double threshold : {0.01, 1.0})  // at the capacity, and below it
    for (const double capacity : {0.1, 1.0})
      expect_contraction({.plugin = plugin(),
                          .options = {{"threshold", threshold}, {"capacity", capacity}},
                          .shapes = {{300}, {0}, {1}, {57}, {20, 33}},
                          .rounding = 1e-6});
}

}  // namespace
}  // namespace penstock::test
