// bf16 against the definition of its rounding; the cases are shared by both 16-bit formats.
#include <support/cast_cases.hpp>
#include <support/half.hpp>
#include <support/plugin.hpp>

#include <cmath>
#include <limits>
#include <support/rig.hpp>

namespace penstock::test {
namespace {

const CastFormat kFormat{PENSTOCK_PLUGIN_FILE, to_bfloat16, from_bfloat16, 0x1.fep127f};

TEST(Bf16, SumsRoundedValues) {
  expect_cast_sums(kFormat);
}

TEST(Bf16, WhatRoundingLosesStaysInTheResidual) {
  expect_cast_keeps_rounding(kFormat);
}

TEST(Bf16, ValuesTooLargeStayInTheResidual) {
  expect_cast_overflow_is_kept(kFormat);
}

TEST(Bf16, PayloadsAreInput) {
  expect_cast_reads_payloads_as_input(kFormat);
}

TEST(Bf16, WithoutAMemoryAValueTooLargeIsInfinite) {
  CompressorRig rig({.ranks = 2}, {{1}}, load_plugin(PENSTOCK_PLUGIN_FILE));
  const float largest_float = std::numeric_limits<float>::max();
  EXPECT_TRUE(std::isinf(rig.step({{{largest_float}}, {{0}}})[0][0]));
}

}  // namespace
}  // namespace penstock::test
