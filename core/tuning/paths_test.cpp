// The path whose lines are used to plan a set.

#include "core/tuning/paths.hpp"

#include <gtest/gtest.h>

namespace penstock::paths_test {
namespace {

using planning::LinkEntry;

constexpr double kHostAlpha = 100, kDirectAlpha = 7;

LinkEntry line(double alpha_us, uint32_t pattern, uint64_t bytes_from = 0,
               uint32_t level = PENSTOCK_LEVEL_WORLD) {
  LinkEntry entry;
  entry.alpha_us = alpha_us;
  entry.pattern = pattern;
  entry.bytes_from = bytes_from;
  entry.level = level;
  return entry;
}

LinkLines lines_of(double alpha_us, std::vector<uint32_t> patterns) {
  LinkLines lines;
  lines.whole = line(alpha_us, 0);
  for (const uint32_t pattern : patterns)
    for (const uint64_t bytes_from : {0, 32768})
      lines.by_size.push_back(line(alpha_us, pattern, bytes_from));
  return lines;
}

const std::vector<uint32_t> kAll{PENSTOCK_ALL_REDUCE, PENSTOCK_REDUCE_SCATTER, PENSTOCK_ALL_GATHER};

// The alphas that a scheduler sees: of the link, and of the two lines of each pattern.
struct Shown {
  double link, sums, scattered, gathers;
  bool operator==(const Shown&) const = default;
};
void PrintTo(const Shown& shown, std::ostream* out) {
  *out << shown.link << " " << shown.sums << " " << shown.scattered << " " << shown.gathers;
}

Shown shown_of(const BytesByPath& bytes, const std::vector<uint32_t>& measured = kAll) {
  LinkLines host = lines_of(kHostAlpha, kAll);
  std::vector<LinkEntry> links{host.whole}, lines = host.by_size;
  take_direct(lines_of(kDirectAlpha, measured), PENSTOCK_LEVEL_WORLD, DirectShare(bytes), links,
              lines);
  const auto of = [&](uint32_t pattern) {
    std::vector<double> found;
    for (const LinkEntry& entry : lines)
      if (entry.pattern == pattern) found.push_back(entry.alpha_us);
    EXPECT_EQ(found.size(), 2u);
    EXPECT_EQ(found.front(), found.back());
    return found.front();
  };
  EXPECT_EQ(links.size(), 1u);
  return {links[0].alpha_us, of(PENSTOCK_ALL_REDUCE), of(PENSTOCK_REDUCE_SCATTER),
          of(PENSTOCK_ALL_GATHER)};
}

constexpr Shown kAllByHost{kHostAlpha, kHostAlpha, kHostAlpha, kHostAlpha};
constexpr Shown kAllDirectly{kDirectAlpha, kDirectAlpha, kDirectAlpha, kDirectAlpha};

TEST(LineChoice, WhereNothingGoesDirectlyTheLinesAreTheHosts) {
  EXPECT_EQ(shown_of({}), kAllByHost);
  EXPECT_EQ(shown_of({{}, {5, 0}}), kAllByHost);
}

TEST(LineChoice, WhatThereIsNoneOfGoesWithTheRest) {
  EXPECT_EQ(shown_of({{5, 0}, {}}), kAllDirectly);
  EXPECT_EQ(shown_of({{0, 5}, {}}), kAllDirectly);
}

TEST(LineChoice, EachKindHasTheLinesOfTheWayThatMostOfItsBytesTake) {
  EXPECT_EQ(shown_of({{10, 0}, {9, 3}}),
            (Shown{kHostAlpha, kDirectAlpha, kDirectAlpha, kHostAlpha}));
  EXPECT_EQ(shown_of({{10, 1}, {2, 3}}),
            (Shown{kDirectAlpha, kDirectAlpha, kDirectAlpha, kHostAlpha}));
  EXPECT_EQ(shown_of({{0, 4}, {5, 3}}), (Shown{kHostAlpha, kHostAlpha, kHostAlpha, kDirectAlpha}));
  EXPECT_EQ(shown_of({{3, 3}, {3, 3}}), kAllByHost) << "half is not most";
}

TEST(LineChoice, APatternThatWasNotMeasuredKeepsTheHostsLines) {
  EXPECT_EQ(shown_of({{5, 0}, {}}, {PENSTOCK_ALL_GATHER}),
            (Shown{kHostAlpha, kHostAlpha, kHostAlpha, kDirectAlpha}));
  EXPECT_EQ(shown_of({{5, 5}, {}}, {}), kAllByHost);
}

TEST(LineChoice, LinesOfOtherLevelsStay) {
  std::vector<LinkEntry> links, lines;
  for (const uint32_t level : {PENSTOCK_LEVEL_WORLD, PENSTOCK_LEVEL_LOCAL, PENSTOCK_LEVEL_CROSS}) {
    links.push_back(line(kHostAlpha, 0, 0, level));
    lines.push_back(line(kHostAlpha, PENSTOCK_ALL_REDUCE, 0, level));
  }
  take_direct(lines_of(kDirectAlpha, {PENSTOCK_ALL_REDUCE}), PENSTOCK_LEVEL_WORLD,
              DirectShare({{5, 0}, {}}), links, lines);
  for (const auto& entries : {links, lines})
    for (const LinkEntry& entry : entries)
      EXPECT_EQ(entry.alpha_us, entry.level == PENSTOCK_LEVEL_WORLD ? kDirectAlpha : kHostAlpha);
  EXPECT_EQ(links.size(), 3u);
  EXPECT_EQ(lines.size(), 4u);
}

}  // namespace
}  // namespace penstock::paths_test
