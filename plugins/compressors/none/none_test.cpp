// The dense mean through the rig, and the declarations of `none`.
#include <gtest/gtest.h>

#include <cmath>
#include <support/compressor_cases.hpp>

namespace penstock::test {
namespace {

Tensors values_of(uint32_t rank, const std::vector<uint64_t>& sizes) {
  Tensors tensors;
  for (uint64_t size : sizes) {
    auto& values = tensors.emplace_back(size);
    for (uint64_t i = 0; i < size; ++i) values[i] = float(rank + 1) * float(i % 97) - 3.5f;
  }
  return tensors;
}

TEST(None, GivesTheMeanForAwkwardSizesOnOneToFourRanks) {
  const std::vector<uint64_t> sizes{0, 1, 2, 3, 31, 64, 1000, 65537};
  std::vector<Shape> shapes;
  for (uint64_t size : sizes) shapes.push_back({int64_t(size)});
  for (uint32_t ranks = 1; ranks <= 4; ++ranks) {
    CompressorRig rig({.ranks = ranks}, shapes, load_plugin(PENSTOCK_PLUGIN_FILE));
    RankTensors gradients;
    for (uint32_t rank = 0; rank < ranks; ++rank) gradients.push_back(values_of(rank, sizes));
    const Tensors mean = rig.step(gradients);
    for (size_t item = 0; item < sizes.size(); ++item)
      for (size_t i = 0; i < sizes[item]; ++i) {
        double sum = 0;
        for (uint32_t rank = 0; rank < ranks; ++rank) sum += gradients[rank][item][i];
        // Sums of small multiples of one half are exact; the division rounds once.
        ASSERT_NEAR(mean[item][i], sum / ranks, 1e-6 * std::abs(sum)) << item << "[" << i << "]";
      }
  }
}

TEST(None, SixteenMillionElementsGoAsTheyAre) {
  expect_large_gradients_equal({.plugin = load_plugin(PENSTOCK_PLUGIN_FILE), .keeps = false},
                               each_element([](float x) { return x; }));
}

TEST(None, TakesEverythingOutOfWorkWhereAMemoryKeeps) {
  CompressorRig rig({.ranks = 2, .check_mass = true, .keep = true}, {{100}},
                    load_plugin(PENSTOCK_PLUGIN_FILE));
  rig.step({values_of(0, {100}), values_of(1, {100})});
}

}  // namespace
}  // namespace penstock::test
