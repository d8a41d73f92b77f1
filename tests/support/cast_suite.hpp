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

}  // namespace penstock::test
