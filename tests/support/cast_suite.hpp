// The cases of cast_cases.hpp as a test suite for the test program of one format. To include this
// file registers its tests.
#pragma once

#include <gtest/gtest.h>

#include <support/cast_cases.hpp>

namespace penstock::test {

// Printed by gtest.
inline void PrintTo(const CastFormat& format, std::ostream* out) {
  *out << format.plugin_file;
}

// Instantiated with a format, which adds the cases.
class CastCases : public ::testing::TestWithParam<CastFormat> {};

TEST_P(CastCases, SumsRoundedValues) {
  expect_cast_sums(GetParam());
}
TEST_P(CastCases, SixteenMillionElementsEqualTheOracle) {
  expect_large_casts(GetParam());
}
TEST_P(CastCases, WhatRoundingLosesStaysInTheResidual) {
  expect_cast_keeps_rounding(GetParam());
}
TEST_P(CastCases, ValuesTooLargeStayInTheResidual) {
  expect_cast_overflow_is_kept(GetParam());
}
TEST_P(CastCases, PayloadsAreInput) {
  expect_cast_reads_payloads_as_input(GetParam());
}
TEST_P(CastCases, WithoutAMemoryAValueTooLargeIsInfinite) {
  expect_cast_overflows_without_memory(GetParam());
}
TEST_P(CastCases, GatheredValuesAreAddedInFloat32) {
  expect_gathered_casts_are_added_in_float32(GetParam());
}
TEST_P(CastCases, GatheredPayloadsAreInput) {
  expect_gathered_casts_read_payloads_as_input(GetParam());
}
TEST_P(CastCases, StochasticRoundingFollowsItsWords) {
  expect_casts_by_chance_follow_their_words(GetParam());
}
TEST_P(CastCases, StochasticRoundingIsUnbiased) {
  expect_casts_by_chance_are_unbiased(GetParam());
}
TEST_P(CastCases, StochasticRoundingIsEqualWhereverItRuns) {
  expect_casts_by_chance_are_equal_wherever_they_run(GetParam());
}
TEST_P(CastCases, OptionsAreInTheTraits) {
  expect_cast_options_are_in_the_traits(GetParam());
}

}  // namespace penstock::test
