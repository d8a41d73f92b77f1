// Published lines: every number of ranks has one.
#include "planning/published_links.hpp"

#include <gtest/gtest.h>

namespace penstock::planning {
namespace {

constexpr PublishedLink kRows[] = {{2, 1, 8}, {4, 3, 16}, {16, 9, 4}};

void expect_line(uint32_t ranks, double startup_s, double s_per_byte) {
  const PublishedLink line = link_for(kRows, ranks);
  EXPECT_EQ(line.startup_s, startup_s) << ranks;
  EXPECT_EQ(line.s_per_byte, s_per_byte) << ranks;
}

TEST(PublishedLinks, RowsAreTakenAsTheyAre) {
  expect_line(2, 1, 8);
  expect_line(4, 3, 16);
  expect_line(16, 9, 4);
}

TEST(PublishedLinks, BetweenTwoRowsTheLineIsInProportion) {
  expect_line(3, 2, 12);
  expect_line(7, 4.5, 13);  // a quarter of the way from 4 to 16
  expect_line(10, 6, 10);
}

TEST(PublishedLinks, BeyondTheEndsTheNearestRowHolds) {
  expect_line(0, 1, 8);
  expect_line(1, 1, 8);
  expect_line(17, 9, 4);
  expect_line(4294967295u, 9, 4);
}

TEST(PublishedLinks, OneRowHoldsForAll) {
  constexpr PublishedLink kOne[] = {{8, 5, 6}};
  for (uint32_t ranks : {1u, 8u, 9u}) EXPECT_EQ(link_for(kOne, ranks).startup_s, 5) << ranks;
}

}  // namespace
}  // namespace penstock::planning
