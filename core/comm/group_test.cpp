#include "core/comm/group.hpp"

#include <gtest/gtest.h>

namespace penstock::group_test {
namespace {

using Ranks = std::vector<uint32_t>;

Group world(uint32_t rank, const Ranks& hosts) {
  return Group::joined(rank, hosts).value();
}

std::string refusal(const Ranks& ranks) {
  const Result<Group> group = world(1, {0, 0, 1, 1}).subset(ranks);
  EXPECT_EQ(group.status().code(), Code::invalid_argument);
  return std::string(group.status().message());
}

TEST(Group, NoRanksMeansAllOfThem) {
  const Group all = world(1, {0, 0, 1, 1}).subset({}).value();
  EXPECT_EQ(all.ranks(), (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(all.level(), uint32_t{PENSTOCK_LEVEL_WORLD});
  EXPECT_EQ(world(1, {0, 0}).subset(Ranks{0, 1}).value().level(), uint32_t{PENSTOCK_LEVEL_WORLD});
}

TEST(Group, ASubsetKeepsTheHostsOfItsMembersAndCountsWithinItself) {
  const Group some = world(3, {0, 0, 1, 2, 2}).subset(Ranks{1, 3, 4}).value();
  EXPECT_EQ(some.ranks(), (Ranks{1, 3, 4}));
  EXPECT_EQ(some.hosts(), (Ranks{0, 2, 2}));
  EXPECT_EQ(some.rank(), 1u);
  EXPECT_EQ(some.world_rank(), 3u);
  EXPECT_EQ(some.host(), 2u);
  EXPECT_EQ(some.n_hosts(), 2u);
  EXPECT_EQ(some.level(), uint32_t{PENSTOCK_LEVEL_SUBSET});
  EXPECT_EQ(some.position_of(4), 2u);
  EXPECT_EQ(some.position_of(2), std::nullopt);
  EXPECT_EQ(some.local().ranks(), (Ranks{3, 4}));
  EXPECT_EQ(some.cross().ranks(), (Ranks{1, 3}));
}

TEST(Group, RefusesRanksThatAreNoGroupOfThisRank) {
  EXPECT_EQ(refusal({1, 0}), "ranks are [1, 0], expected ascending ranks below 4");
  EXPECT_EQ(refusal({1, 1}), "ranks are [1, 1], expected ascending ranks below 4");
  EXPECT_EQ(refusal({1, 4}), "ranks are [1, 4], expected ascending ranks below 4");
  EXPECT_EQ(refusal({0, 2}), "its ranks [0, 2] do not include this rank, 1");
}

TEST(Group, LocalHasTheRanksOfThisHostAndCrossOneOfEach) {
  const Ranks hosts{0, 1, 0, 1, 2, 2};
  EXPECT_EQ(world(3, hosts).local().ranks(), (Ranks{1, 3}));
  EXPECT_EQ(world(3, hosts).local().level(), uint32_t{PENSTOCK_LEVEL_LOCAL});
  EXPECT_EQ(world(3, hosts).cross().ranks(), (Ranks{2, 3, 5}));
  EXPECT_EQ(world(3, hosts).cross().level(), uint32_t{PENSTOCK_LEVEL_CROSS});
  EXPECT_EQ(world(3, hosts).cross().rank(), 1u);
}

TEST(Group, OnHostsOfUnequalSizeTheCrossGroupsAreOfUnequalSizeToo) {
  const Ranks hosts{0, 0, 0, 1, 2, 2};
  for (const uint32_t rank : {0u, 3u, 4u})
    EXPECT_EQ(world(rank, hosts).cross().ranks(), (Ranks{0, 3, 4})) << rank;
  for (const uint32_t rank : {1u, 5u})
    EXPECT_EQ(world(rank, hosts).cross().ranks(), (Ranks{1, 5})) << rank;
  EXPECT_EQ(world(2, hosts).cross().ranks(), (Ranks{2}));
}

TEST(Group, EachRankIsInOneLocalAndOneCrossGroupWithAllItsMembersAgreeing) {
  const Ranks hosts{0, 1, 1, 0, 2, 1};
  for (uint32_t rank = 0; rank < hosts.size(); ++rank) {
    const Group local = world(rank, hosts).local(), cross = world(rank, hosts).cross();
    for (const uint32_t other : local.ranks())
      EXPECT_EQ(world(other, hosts).local().ranks(), local.ranks());
    for (const uint32_t other : cross.ranks())
      EXPECT_EQ(world(other, hosts).cross().ranks(), cross.ranks());
  }
}

TEST(Group, WhatATransportGetsRefersToTheGroup) {
  const Group some = world(2, {0, 1, 1}).subset(Ranks{0, 2}).value();
  const penstock_group view = some.view(7);
  EXPECT_EQ(view.struct_size, sizeof view);
  EXPECT_EQ(view.id, 7u);
  EXPECT_EQ(view.world_ranks, some.ranks().data());
  EXPECT_EQ(view.hosts, some.hosts().data());
  EXPECT_EQ(view.rank, 1u);
  EXPECT_EQ(view.size, 2u);
  EXPECT_EQ(view.level, uint32_t{PENSTOCK_LEVEL_SUBSET});
}

TEST(Group, AJoinThatTellsNonsenseIsTheTransportsFault) {
  EXPECT_EQ(Group::joined(2, Ranks{0, 0}).status().message(),
            "the transport says that this is rank 2 of 2");
  EXPECT_EQ(Group::joined(0, Ranks{0, 2}).status().message(),
            "the transport says that rank 1 is on host 2, expected at most 1: hosts are numbered "
            "in the order of their first ranks");
  penstock_world world{};
  world.struct_size = sizeof world;
  world.size = 3;
  EXPECT_EQ(Group::joined(world).status().message(),
            "the transport does not say on which hosts its 3 ranks are");
}

TEST(Group, AWorldOfOneIsItsOwnHost) {
  const Group alone;
  EXPECT_EQ(alone.ranks(), (Ranks{0}));
  EXPECT_EQ(alone.local().size(), 1u);
  EXPECT_EQ(alone.cross().size(), 1u);
}

}  // namespace
}  // namespace penstock::group_test
