// The bytes of a saved state. Written values are read back, and damaged bytes are refused.
#include "core/set/saved.hpp"

#include <gtest/gtest.h>

namespace penstock::saved_test {
namespace {

SavedSet example(uint32_t rank = 0, uint32_t world = 1) {
  SavedSet saved;
  saved.name = "model";
  saved.rank = rank;
  saved.world = world;
  saved.step = 7;
  saved.plan = "a plan";
  saved.tensors = "tensors";
  saved.carries = {"", "left"};
  return saved;
}

std::string bytes_of(const SavedSet& saved) {
  std::string out;
  write_saved(saved, out);
  return out;
}

TEST(Saved, WhatIsWrittenIsRead) {
  const std::string bytes = bytes_of(example(2, 3));
  Result<SavedSet> read = read_saved(bytes, "model", 2);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->name, "model");
  EXPECT_EQ(read->rank, 2u);
  EXPECT_EQ(read->world, 3u);
  EXPECT_EQ(read->step, 7u);
  EXPECT_EQ(read->plan, "a plan");
  EXPECT_EQ(read->tensors, "tensors");
  EXPECT_EQ(read->carries, (std::vector<std::string_view>{"", "left"}));
}

TEST(Saved, StandsBehindWhatIsThereAlready) {
  std::string out = "before";
  write_saved(example(), out);
  EXPECT_EQ(out.substr(0, 6), "before");
  EXPECT_TRUE(read_saved(std::string_view(out).substr(6), "model", 2).ok());
}

TEST(Saved, EveryTruncationAndEveryChangedByteIsRefused) {
  const std::string whole = bytes_of(example());
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(read_saved(std::string_view(whole).substr(0, size), "model", 2).ok()) << size;
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] ^= 1;
    EXPECT_FALSE(read_saved(changed, "model", 2).ok()) << i;
  }
}

TEST(Saved, OfAnotherModelIsRefused) {
  EXPECT_EQ(read_saved(bytes_of(example()), "model", 1).status().message(),
            "the saved state of set 'model' is of another model");
}

TEST(Saved, ShardsAreThoseOfAllRanksInTheirOrder) {
  const std::string first = bytes_of(example(0, 2)), second = bytes_of(example(1, 2));
  const std::string_view both[] = {first, second}, turned[] = {second, first}, one[] = {first};
  EXPECT_TRUE(read_all_saved(both, "model", 2).ok());
  EXPECT_EQ(read_all_saved(turned, "model", 2).status().code(), Code::mismatch);
  EXPECT_EQ(read_all_saved(one, "model", 2).status().code(), Code::mismatch);
  EXPECT_EQ(read_all_saved({}, "model", 2).status().message(), "set 'model' got no shard to load");
}

TEST(Saved, ShardsOfTwoRunsAreRefused) {
  SavedSet other = example(1, 2);
  other.plan = "another plan";
  const std::string first = bytes_of(example(0, 2)), second = bytes_of(other);
  const std::string_view both[] = {first, second};
  EXPECT_EQ(read_all_saved(both, "model", 2).status().message(),
            "shards 0 and 1 for set 'model' have different plans: they are of two runs");
}

TEST(Saved, ADamagedShardIsNamed) {
  const std::string first = bytes_of(example(0, 2));
  const std::string_view both[] = {first, "not a state at all"};
  EXPECT_EQ(read_all_saved(both, "model", 2).status().message().substr(0, 8), "shard 1:");
}

}  // namespace
}  // namespace penstock::saved_test
