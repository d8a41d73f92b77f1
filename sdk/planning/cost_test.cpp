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

penstock_candidate candidate_of(std::string_view compressor) {
  penstock_candidate candidate{};
  candidate.compressor = {compressor.data(), compressor.size()};
  candidate.encode_fixed_us = 2;
  candidate.encode_per_element_us = 0.5;
  candidate.decode_fixed_us = 1;
  candidate.decode_per_element_us = kNaN;
  return candidate;
}

TEST(Cost, ACallTakesItsFixedPartAndItsSlope) {
  Coding coding;
  coding.add(candidate_of("topk"), 10);
  EXPECT_EQ(coding.encode_us(), 7);
  EXPECT_EQ(coding.decode_us(), 1);
}

TEST(Cost, TheFixedPartCountsOncePerCallAndNotOncePerGradient) {
  Coding coding;
  for (uint64_t numel : {10, 0, 4}) coding.add(candidate_of("topk"), numel);
  EXPECT_EQ(coding.encode_us(), 2 + 0.5 * 14);
  EXPECT_EQ(coding.decode_us(), 1);
}

TEST(Cost, EachCompressorOfABucketIsACallOfItsOwn) {
  Coding coding;
  coding.add(candidate_of("topk"), 10);
  coding.add(candidate_of("none"), 2);
  coding.add(candidate_of("topk"), 2);
  EXPECT_EQ(coding.encode_us(), 2 + 2 + 0.5 * 14);
  EXPECT_EQ(coding.decode_us(), 2);
}

TEST(Cost, ACandidateThatHasNotRunIsUnmeasuredAndNotFree) {
  EXPECT_TRUE(is_measured(candidate_of("topk")));
  for (double unmeasured : {-1.0, kNaN, kInfinity}) {
    penstock_candidate candidate = candidate_of("topk");
    candidate.encode_fixed_us = unmeasured;
    EXPECT_FALSE(is_measured(candidate));
  }
  ModelEntries entries;
  entries.gradients = {dense_gradient("g", 3)};
  const OwnedModel owned(std::move(entries));
  EXPECT_FALSE(is_measured(*owned.model().gradients[0]->candidates[0]));
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

TEST(Cost, ThePatternsOwnLineCountsFromItsSizeOn) {
  ModelEntries entries;
  entries.world = 8;
  entries.links = {{10, 1, PENSTOCK_LEVEL_WORLD}};
  entries.lines = {{1, 2, PENSTOCK_LEVEL_WORLD, PENSTOCK_ALL_REDUCE, 0},
                   {50, 1, PENSTOCK_LEVEL_WORLD, PENSTOCK_ALL_REDUCE, 100},
                   {3, 0, PENSTOCK_LEVEL_CROSS, PENSTOCK_ALL_GATHER, 0},
                   {7, 3, PENSTOCK_LEVEL_WORLD, PENSTOCK_ALL_GATHER, 0}};
  const OwnedModel owned(std::move(entries));
  EXPECT_EQ(exchange_us(owned.model(), {99, 0, 1}), 1 + 2 * 99);
  EXPECT_EQ(exchange_us(owned.model(), {100, 0, 1}), 50 + 100);
  EXPECT_EQ(exchange_us(owned.model(), {0, 100, 1}), 7 + 3 * 100);
}

TEST(Cost, WhatTheTransportMovesTellsAGatherFromASum) {
  ModelEntries entries;
  entries.world = 8;
  entries.links = {{10, 1, PENSTOCK_LEVEL_WORLD}};
  entries.volume = [](void*, uint32_t pattern, uint32_t, uint32_t, uint64_t bytes,
                      penstock_volume* const* volumes) -> penstock_status* {
    volumes[0]->bytes = double(bytes) * (pattern == PENSTOCK_ALL_GATHER ? 6 : 2);
    return nullptr;
  };
  const OwnedModel owned(std::move(entries));
  EXPECT_EQ(exchange_us(owned.model(), {0, 100, 1}), 10 + 300);
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
