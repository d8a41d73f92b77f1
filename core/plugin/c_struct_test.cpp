// Copies of structs from other versions, older and newer.
#include "core/plugin/c_struct.hpp"

#include "core/fit/needs.hpp"
#include "core/plugin/testing.hpp"

#include <vector>

namespace penstock::c_struct_test {
namespace {

using test::contains;

// A struct in its first version, in the version of this host, and in a later version.
struct First {
  uint64_t struct_size;
  uint64_t capacity;
};
struct Known {
  uint64_t struct_size;
  uint64_t capacity;
  uint64_t since_then;
};
struct Later {
  uint64_t struct_size;
  uint64_t capacity;
  uint64_t since_then;
  uint64_t future;
};

Status take(const void* theirs, Known& ours) {
  return take_bytes(theirs, "penstock_known", sizeof(First), sizeof(Known), &ours);
}

TEST(TakeStruct, WhatAnOlderMakerDidNotKnowIsZero) {
  const First theirs{sizeof theirs, 7};
  Known ours{1, 2, 3};
  ASSERT_TRUE(take(&theirs, ours).ok());
  EXPECT_EQ(ours.struct_size, sizeof(Known));
  EXPECT_EQ(ours.capacity, 7u);
  EXPECT_EQ(ours.since_then, 0u);
}

TEST(TakeStruct, WhatANewerMakerLeftZeroIsCutOff) {
  const Later theirs{sizeof theirs, 7, 8, 0};
  Known ours{};
  ASSERT_TRUE(take(&theirs, ours).ok());
  EXPECT_EQ(ours.struct_size, sizeof(Known));
  EXPECT_EQ(ours.since_then, 8u);
}

TEST(TakeStruct, WhatANewerMakerSetIsRefusedAndNothingIsTaken) {
  const Later theirs{sizeof theirs, 7, 8, 9};
  Known ours{1, 2, 3};
  const Status status = take(&theirs, ours);
  EXPECT_EQ(status.code(), Code::unimplemented);
  EXPECT_TRUE(contains(status.message(), "penstock_known has a field beyond byte 24"))
      << status.message();
  EXPECT_EQ(ours.capacity, 2u);
}

TEST(TakeStruct, SenselessSizesAreRefused) {
  Known ours{1, 2, 3};
  for (const uint64_t size :
       {uint64_t{0}, uint64_t{8}, sizeof(First) - 1, kMostStructBytes + 1, UINT64_MAX}) {
    const First theirs{size, 7};
    const Status status = take(&theirs, ours);
    EXPECT_EQ(status.code(), Code::invalid_argument) << size;
    EXPECT_TRUE(contains(status.message(), fmt::format("struct_size is {}", size)));
  }
  EXPECT_EQ(take(nullptr, ours).code(), Code::invalid_argument);
  EXPECT_EQ(ours.capacity, 2u);
}

TEST(FillStruct, WritesWhatTheOwnerHasRoomForAndLeavesItsSize) {
  struct {
    Known known;
    uint64_t guard;
  } owner{{sizeof(First), 0, 5}, 6};
  ASSERT_TRUE(fill_struct(&owner.known, "penstock_known", Known{sizeof(Known), 1, 2}).ok());
  EXPECT_EQ(owner.known.struct_size, sizeof(First));
  EXPECT_EQ(owner.known.capacity, 1u);
  EXPECT_EQ(owner.known.since_then, 5u) << "beyond the owner's struct";
  EXPECT_EQ(owner.guard, 6u);
  owner.known.struct_size = 0;
  EXPECT_EQ(fill_struct(&owner.known, "penstock_known", Known{}).code(), Code::invalid_argument);
}

// A published need in which each struct may have an unknown tail.
class Published {
 public:
  Published() {
    state_.known = {sizeof state_,    str("factor"),       4, 2,
                    PENSTOCK_FLOAT32, PENSTOCK_STATE_SOFT, 0, 0};
    bound_.known = {sizeof bound_, 8, PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, 0, 0};
    round_.known = {sizeof round_, bounds_, 1, PENSTOCK_COMBINE_SUM, PENSTOCK_RESULT_MEAN, 0, 0};
  }
  void publish(penstock_compressor_need& need) {
    need.rounds = rounds_;
    need.n_rounds = 1;
    need.states = states_;
    need.n_states = 1;
  }
  // The tails, by the name of their struct.
  std::vector<std::pair<std::string, uint64_t*>> tails() {
    return {{"penstock_state_declaration", &state_.future},
            {"penstock_section_bound", &bound_.future},
            {"penstock_round", &round_.future}};
  }
  penstock_round* round() { return &round_.known; }

 private:
  template <typename T>
  struct Grown {
    T known;
    uint64_t future = 0;
  };
  Grown<penstock_state_declaration> state_{};
  Grown<penstock_section_bound> bound_{};
  Grown<penstock_round> round_{};
  const penstock_section_bound* bounds_[1] = {&bound_.known};
  const penstock_round* rounds_[1] = {&round_.known};
  const penstock_state_declaration* states_[1] = {&state_.known};
};

TEST(Needs, AreCopiesThatOutliveThePlugins) {
  CompressorNeed need;
  {
    Published published;
    published.publish(need.c);
    ASSERT_TRUE(need.adopt().ok());
    EXPECT_NE(need.c.rounds[0], published.round());
  }
  EXPECT_EQ(need.c.rounds[0]->struct_size, sizeof(penstock_round));
  EXPECT_EQ(need.c.rounds[0]->sections[0]->struct_size, sizeof(penstock_section_bound));
  EXPECT_EQ(need.c.rounds[0]->sections[0]->capacity, 8u);
  EXPECT_EQ(need.c.states[0]->struct_size, sizeof(penstock_state_declaration));
  EXPECT_EQ(need.c.states[0]->rows, 4u);
}

TEST(Needs, AFieldThatWeDoNotKnowIsRefusedWhereverItIsSet) {
  for (size_t which = 0; which < 3; ++which) {
    Published published;
    const auto [name, tail] = published.tails()[which];
    *tail = 1;
    CompressorNeed need;
    published.publish(need.c);
    const Status status = need.adopt();
    EXPECT_EQ(status.code(), Code::unimplemented) << name;
    EXPECT_TRUE(contains(status.message(), name + " has a field beyond byte")) << status.message();
  }
}

TEST(Needs, AStateOfAMemoryIsTakenLikeThatOfACompressor) {
  Published published;
  penstock_compressor_need from{};
  published.publish(from);
  MemoryNeed memory;
  CollectiveNeed collective;
  memory.c.states = collective.c.states = from.states;
  memory.c.n_states = collective.c.n_states = 1;
  *published.tails()[0].second = 1;
  penstock_memory table{};
  table.struct_size = sizeof table;
  penstock_item item{};
  EXPECT_EQ(memory.adopt(table, item).code(), Code::unimplemented);
  EXPECT_EQ(collective.adopt("later").code(), Code::unimplemented);
}

TEST(Needs, ARoundShorterThanEverPublishedIsRefused) {
  Published published;
  published.round()->struct_size = 16;
  CompressorNeed need;
  published.publish(need.c);
  EXPECT_EQ(need.adopt().code(), Code::internal);
}

TEST(Needs, ThePluginLeavesOurStructSizeAlone) {
  CompressorNeed need;
  need.c.struct_size += 8;
  EXPECT_EQ(need.adopt().code(), Code::internal);
}

}  // namespace
}  // namespace penstock::c_struct_test
