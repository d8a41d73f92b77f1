// Cost lines: the arithmetic, and that broken measurements count as unmeasured.
#include "planning/cost.hpp"
#include "planning/model.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace penstock::planning {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

OwnedModel model_of(std::vector<LinkEntry> links, uint32_t world) {
  ModelEntries entries;
  entries.links = std::move(links);
  entries.world = world;
  return OwnedModel(std::move(entries));
}

TEST(Cost, WhatIsNoTimeCountsAsUnmeasured) {
  EXPECT_EQ(usable(3.5), 3.5);
  EXPECT_EQ(usable(0), 0);
  EXPECT_EQ(usable(-1), 0);
  EXPECT_EQ(usable(kNaN), 0);
  EXPECT_EQ(usable(kInfinity), 0);
  EXPECT_EQ(usable(-kInfinity), 0);
}

TEST(Cost, ALineIsItsFixedPartPlusItsSlope) {
  penstock_candidate candidate{};
  candidate.encode_fixed_us = 2;
  candidate.encode_per_element_us = 0.5;
  candidate.decode_fixed_us = 1;
  candidate.decode_per_element_us = kNaN;
  EXPECT_EQ(encode_us(candidate, 10), 7);
  EXPECT_EQ(encode_us(candidate, 0), 2);
  EXPECT_EQ(decode_us(candidate, 1000), 1);
}

TEST(Cost, TheSlowestLevelDecides) {
  const OwnedModel owned = model_of({{1, 0.5, PENSTOCK_LEVEL_LOCAL}, {10, 0.25, 3}}, 8);
  EXPECT_EQ(message_us(owned.model(), 8), 12);   // 5 against 12
  EXPECT_EQ(message_us(owned.model(), 80), 41);  // 41 against 30
  EXPECT_EQ(startup_us(owned.model()), 10);
}

TEST(Cost, WithoutLinksMessagesAreFree) {
  const OwnedModel owned = model_of({}, 4);
  EXPECT_EQ(message_us(owned.model(), 1e9), 0);
  EXPECT_EQ(exchange_us(owned.model(), {100, 100, 3}), 0);
}

TEST(Cost, GatheredBytesCostHalfTheWorldTimesAsMuch) {
  const OwnedModel owned = model_of({{10, 1, PENSTOCK_LEVEL_WORLD}}, 8);
  EXPECT_EQ(exchange_us(owned.model(), {100, 0, 1}), 110);
  EXPECT_EQ(exchange_us(owned.model(), {0, 100, 1}), 410);
  EXPECT_EQ(exchange_us(owned.model(), {100, 100, 1}), 520);  // two messages
  const OwnedModel pair = model_of({{10, 1, PENSTOCK_LEVEL_WORLD}}, 1);
  EXPECT_EQ(exchange_us(pair.model(), {0, 100, 1}), 110);  // never cheaper than a sum
}

TEST(Cost, RoundsAndEmptyBucketsPayStartUps) {
  const OwnedModel owned = model_of({{10, 1, PENSTOCK_LEVEL_WORLD}}, 2);
  EXPECT_EQ(exchange_us(owned.model(), {100, 0, 3}), 130);
  EXPECT_EQ(exchange_us(owned.model(), {0, 0, 1}), 10);
  EXPECT_EQ(exchange_us(owned.model(), {0, 0, 0}), 10);
}

TEST(Cost, PayloadsAreAddedByCombineRuleAndShare) {
  const uint64_t bytes[2] = {100, 40};
  penstock_candidate summed{};
  summed.phase_bytes = bytes;
  summed.combine = PENSTOCK_COMBINE_SUM;
  summed.n_rounds = 2;
  penstock_candidate gathered = summed;
  gathered.combine = PENSTOCK_COMBINE_GATHER;
  gathered.n_rounds = 1;
  Volume volume;
  add_payload(volume, summed, 1);
  add_payload(volume, gathered, 0, 0.5);
  EXPECT_EQ(volume.summed_bytes, 40);
  EXPECT_EQ(volume.gathered_bytes, 50);
  EXPECT_EQ(volume.n_rounds, 2u);
}

}  // namespace
}  // namespace penstock::planning
