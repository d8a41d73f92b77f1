// The loopback transport, loaded as a plugin: every pattern, bad messages, and dead ranks.
#include "loopback_testing.hpp"

#include <cmath>

namespace penstock::test::loopback_test {
namespace {

const LoadedPlugin& plugin() {
  static const LoadedPlugin loaded = load_plugin(PENSTOCK_PLUGIN_FILE);
  return loaded;
}

const std::vector<uint32_t> kSizes{1, 2, 3, 4, 8};
const std::vector<uint64_t> kCounts{0, 1, 7, 65536, 200'001};  // a segment has 65536 elements

// Values whose sum depends on the order of addition.
float value(uint32_t rank, uint64_t i) {
  return std::sin(static_cast<float>(i + 1)) *
         std::pow(10.0f, static_cast<float>((rank * 5 + i) % 7));
}

std::vector<float> values(uint32_t rank, uint64_t count) {
  std::vector<float> all(count);
  for (uint64_t i = 0; i < count; ++i) all[i] = value(rank, i);
  return all;
}

std::vector<float> ordered_sum(uint32_t size, uint64_t count) {
  std::vector<float> sum(count);
  for (uint64_t i = 0; i < count; ++i) {
    float total = value(0, i);
    for (uint32_t r = 1; r < size; ++r) total += value(r, i);
    sum[i] = total;
  }
  return sum;
}

TEST(Loopback, AllReduceAddsInAscendingRankOrderToTheBit) {
  for (uint32_t size : kSizes)
    for (uint64_t count : kCounts)
      on_ranks(plugin(), size, [&](LoopbackRank& rank, uint32_t r) {
        const auto mine = values(r, count);
        std::vector<float> received(count);
        auto message = message_of(PENSTOCK_ALL_REDUCE, 3);
        message.send = mine.data();
        message.receive = received.data();
        message.count = count;
        const Outcome outcome = rank.exchange(message);
        EXPECT_TRUE(outcome.ok()) << outcome.message;
        EXPECT_EQ(received, ordered_sum(size, count));
      });
}

// A value that does not fit 32 bits would become the number of another rank.
TEST(Loopback, NoOptionTakesAValueThatDoesNotFit32Bits) {
  for (uint64_t i = 0; i < plugin().module->n_options; ++i) {
    const penstock_option& option = *plugin().module->options[i];
    if (option.type != PENSTOCK_OPTION_INTEGER) continue;
    const std::string name(option.name.data, option.name.size);
    EXPECT_EQ(option.maximum, name == "rank" ? 4095 : 4096) << name;
  }
}

TEST(Loopback, JoiningTwiceNamesTheRankAndTheRemedy) {
  on_ranks(plugin(), 1, [](LoopbackRank& rank, uint32_t) {
    penstock_world world{};
    world.struct_size = sizeof world;
    const Outcome outcome = take(rank.table.join(rank.self, kPatience, &world));
    EXPECT_EQ(outcome.code, PENSTOCK_FAILED_PRECONDITION);
    for (const char* part : {"rank 0 has already joined", "leave before"})
      EXPECT_NE(outcome.message.find(part), std::string::npos) << outcome.message;
  });
}

TEST(Loopback, AllReduceWorksInPlaceAndAgainWithTheSameTag) {
  on_ranks(plugin(), 4, [](LoopbackRank& rank, uint32_t r) {
    for (int again = 0; again < 50; ++again) {
      auto data = values(r, 1000);
      auto message = message_of(PENSTOCK_ALL_REDUCE, 3);
      message.send = message.receive = data.data();
      message.count = data.size();
      EXPECT_TRUE(rank.exchange(message).ok());
      EXPECT_EQ(data, ordered_sum(4, 1000));
    }
  });
}

TEST(Loopback, MessagesAreMatchedByTagNotByOrder) {
  on_ranks(plugin(), 3, [](LoopbackRank& rank, uint32_t r) {
    std::vector<int64_t> sums(20, 0);
    std::vector<int64_t> mine(20);
    std::vector<penstock_ticket*> tickets(20);
    std::vector<penstock_message> messages(20);
    for (uint32_t i = 0; i < 20; ++i) {
      const uint32_t tag = (i * 7 + r * 3) % 20;  // every rank has an order of its own
      mine[tag] = tag * 100 + r;
      messages[tag] = message_of(PENSTOCK_ALL_REDUCE, tag, PENSTOCK_INT64);
      messages[tag].send = &mine[tag];
      messages[tag].receive = &sums[tag];
      messages[tag].count = 1;
      PENSTOCK_EXPECT_OK(rank.table.submit(rank.self, rank.channel, &messages[tag], &tickets[tag]));
    }
    for (uint32_t tag = 0; tag < 20; ++tag) {
      uint32_t state = PENSTOCK_PENDING;
      while (state == PENSTOCK_PENDING)
        PENSTOCK_EXPECT_OK(rank.table.progress(rank.self, tickets[tag], &state));
      EXPECT_EQ(sums[tag], 3 * tag * 100 + 3);
      rank.table.release(rank.self, tickets[tag]);
    }
  });
}

TEST(Loopback, ReduceScatterGivesEachRankItsShare) {
  for (uint32_t size : kSizes)
    on_ranks(plugin(), size, [&](LoopbackRank& rank, uint32_t r) {
      std::vector<uint64_t> counts(size);
      uint64_t total = 0;
      uint64_t before = 0;
      for (uint32_t s = 0; s < size; ++s) {
        counts[s] = s == 1 ? 0 : 1000 * s + 17;
        if (s < r) before += counts[s];
        total += counts[s];
      }
      const auto mine = values(r, total);
      std::vector<float> received(counts[r]);
      auto message = message_of(PENSTOCK_REDUCE_SCATTER, 1);
      message.send = mine.data();
      message.receive = received.data();
      message.count = total;
      message.receive_counts = counts.data();
      EXPECT_TRUE(rank.exchange(message).ok());
      const auto sum = ordered_sum(size, total);
      EXPECT_EQ(received,
                std::vector<float>(sum.begin() + before, sum.begin() + before + counts[r]));
    });
}

TEST(Loopback, AllGatherTakesAnyCountThatFitsAndTellsHowManyCame) {
  for (uint32_t size : kSizes)
    on_ranks(plugin(), size, [&](LoopbackRank& rank, uint32_t r) {
      const auto mine = values(r, 100 * r);
      std::vector<float> received(size * 1000, -1);
      std::vector<uint64_t> counts(size, 1000), offsets(size);
      for (uint32_t s = 0; s < size; ++s) offsets[s] = 1000 * s;
      auto message = message_of(PENSTOCK_ALL_GATHER, 9);
      message.send = mine.data();
      message.receive = received.data();
      message.count = mine.size();
      message.receive_counts = counts.data();
      message.receive_offsets = offsets.data();
      const Outcome outcome = rank.exchange(message);
      EXPECT_TRUE(outcome.ok()) << outcome.message;
      for (uint32_t s = 0; s < size; ++s) {
        EXPECT_EQ(counts[s], 100 * s);
        const auto theirs = values(s, 100 * s);
        EXPECT_TRUE(std::equal(theirs.begin(), theirs.end(), received.begin() + 1000 * s));
        EXPECT_EQ(received[1000 * s + 100 * s], -1) << "wrote behind what came";
      }
    });
}

TEST(Loopback, AllToAllDeliversToEveryRankItsOwnElements) {
  for (uint32_t size : kSizes)
    on_ranks(plugin(), size, [&](LoopbackRank& rank, uint32_t r) {
      std::vector<uint64_t> send_counts(size), counts(size, 64), offsets(size);
      std::vector<uint32_t> mine;
      for (uint32_t s = 0; s < size; ++s) {
        send_counts[s] = (r + 2 * s) % 5;
        offsets[s] = 64 * s;
        for (uint64_t i = 0; i < send_counts[s]; ++i) mine.push_back(10'000 * r + 100 * s + i);
      }
      std::vector<uint32_t> received(64 * size, 7);
      auto message = message_of(PENSTOCK_ALL_TO_ALL, 2, PENSTOCK_UINT32);
      message.send = mine.data();
      message.receive = received.data();
      message.count = mine.size();
      message.send_counts = send_counts.data();
      message.receive_counts = counts.data();
      message.receive_offsets = offsets.data();
      EXPECT_TRUE(rank.exchange(message).ok());
      for (uint32_t s = 0; s < size; ++s) {
        EXPECT_EQ(counts[s], (s + 2 * r) % 5);
        for (uint64_t i = 0; i < counts[s]; ++i)
          EXPECT_EQ(received[64 * s + i], 10'000 * s + 100 * r + i);
      }
    });
}

TEST(Loopback, BroadcastSendReceiveAndBarrier) {
  on_ranks(plugin(), 4, [](LoopbackRank& rank, uint32_t r) {
    auto data = values(r, 300'000);
    auto message = message_of(PENSTOCK_BROADCAST, 4);
    message.send = message.receive = data.data();
    message.count = data.size();
    message.peer = 2;
    EXPECT_TRUE(rank.exchange(message).ok());
    EXPECT_EQ(data, values(2, 300'000));
    EXPECT_TRUE(rank.exchange(message_of(PENSTOCK_BARRIER, 4)).ok());
    // Around the ring: sends end without waiting for the receiver.
    const auto mine = values(r, 50 + r);
    auto send = message_of(PENSTOCK_SEND, 5);
    send.send = mine.data();
    send.count = mine.size();
    send.peer = (r + 1) % 4;
    EXPECT_TRUE(rank.exchange(send).ok());
    std::vector<float> room(100);
    uint64_t came = 0;
    auto receive = message_of(PENSTOCK_RECEIVE, 5);
    receive.receive = room.data();
    receive.count = room.size();
    receive.peer = (r + 3) % 4;
    receive.receive_counts = &came;
    EXPECT_TRUE(rank.exchange(receive).ok());
    room.resize(came);
    EXPECT_EQ(room, values((r + 3) % 4, 50 + (r + 3) % 4));
  });
}

TEST(Loopback, GroupsMatchApartFromEachOther) {
  on_ranks(plugin(), 4, [](LoopbackRank& rank, uint32_t r) {
    const std::vector<uint32_t> members =
        r % 2 == 0 ? std::vector<uint32_t>{0, 2} : std::vector<uint32_t>{1, 3};
    penstock_channel* half = rank.open(members, 10 + r % 2);
    int32_t mine = static_cast<int32_t>(1 << r);
    int32_t sum = 0;
    auto message = message_of(PENSTOCK_ALL_REDUCE, 3, PENSTOCK_INT32);
    message.send = &mine;
    message.receive = &sum;
    message.count = 1;
    EXPECT_TRUE(carry(rank.table, rank.self, half, message).ok());
    EXPECT_EQ(sum, r % 2 == 0 ? 5 : 10);
    rank.table.close(rank.self, half);
    half = rank.open(members, 10 + r % 2);  // perhaps before the other rank has closed it
    EXPECT_TRUE(carry(rank.table, rank.self, half, message).ok());
    rank.table.close(rank.self, half);
  });
}

TEST(Loopback, RanksThatDisagreeAllGetAMismatch) {
  on_ranks(plugin(), 3, [](LoopbackRank& rank, uint32_t r) {
    std::vector<float> data(16);
    auto message = message_of(PENSTOCK_ALL_REDUCE, 3);
    message.send = message.receive = data.data();
    message.count = r == 1 ? 9 : 8;
    Outcome outcome = rank.exchange(message);
    EXPECT_EQ(outcome.code, PENSTOCK_MISMATCH);
    EXPECT_EQ(outcome.message,
              "all-reduce with tag 3 (operation 1003): ranks disagree on the count: rank 0 has 8, "
              "rank 1 has 9");
    message.count = 8;
    message.pattern = r == 2 ? PENSTOCK_BARRIER : PENSTOCK_ALL_REDUCE;
    EXPECT_EQ(rank.exchange(message).code, PENSTOCK_MISMATCH);
    message.pattern = PENSTOCK_ALL_REDUCE;
    EXPECT_TRUE(rank.exchange(message).ok()) << "the channel lives on";
  });
}

TEST(Loopback, TooLittleRoomFailsOnlyWhereItIsAndNamesTheSender) {
  on_ranks(plugin(), 3, [](LoopbackRank& rank, uint32_t r) {
    const auto mine = values(r, 10 * (r + 1));
    std::vector<float> received(300);
    std::vector<uint64_t> counts(3, r == 0 ? 25 : 100), offsets{0, 100, 200};
    auto message = message_of(PENSTOCK_ALL_GATHER, 6);
    message.send = mine.data();
    message.receive = received.data();
    message.count = mine.size();
    message.receive_counts = counts.data();
    message.receive_offsets = offsets.data();
    const Outcome outcome = rank.exchange(message);
    EXPECT_EQ(outcome.code, r == 0 ? PENSTOCK_MISMATCH : PENSTOCK_OK) << outcome.message;
    if (r == 0) {
      EXPECT_NE(outcome.message.find("rank 2 sent 30 elements, there is room for 25"),
                std::string::npos)
          << outcome.message;
    }
    for (uint32_t s = 0; s < 3; ++s) counts[s] = s == 1 ? 99 : 10 * (s + 1);
    message.flags = PENSTOCK_MESSAGE_EXACT_COUNTS;
    EXPECT_EQ(rank.exchange(message).code, PENSTOCK_MISMATCH);
  });
}

TEST(Loopback, IllegalMessagesAreRefusedAtOnce) {
  on_ranks(plugin(), 1, [](LoopbackRank& rank, uint32_t) {
    penstock_ticket* ticket = nullptr;
    const auto submit = [&](const penstock_message& message) {
      return rank.table.submit(rank.self, rank.channel, &message, &ticket);
    };
    EXPECT_TRUE(fails_with(submit(message_of(77, 1)), PENSTOCK_UNIMPLEMENTED, "77"));
    EXPECT_TRUE(fails_with(submit(message_of(PENSTOCK_SPARSE_ALL_REDUCE, 1)),
                           PENSTOCK_UNIMPLEMENTED, "sparse all-reduce"));
    EXPECT_TRUE(fails_with(submit(message_of(PENSTOCK_ALL_REDUCE, 1, 99)), PENSTOCK_UNIMPLEMENTED,
                           "dtype 99"));
    EXPECT_TRUE(fails_with(submit(message_of(PENSTOCK_BARRIER, 1u << 20)),
                           PENSTOCK_INVALID_ARGUMENT, "tag"));
    auto message = message_of(PENSTOCK_BROADCAST, 1);
    message.peer = 1;
    EXPECT_TRUE(fails_with(submit(message), PENSTOCK_INVALID_ARGUMENT, "peer is 1"));
    message = message_of(PENSTOCK_ALL_REDUCE, 1);
    message.reduction = 9;
    EXPECT_TRUE(fails_with(submit(message), PENSTOCK_UNIMPLEMENTED, "reduction 9"));
    EXPECT_TRUE(fails_with(submit(message_of(PENSTOCK_ALL_GATHER, 1)), PENSTOCK_INVALID_ARGUMENT,
                           "receive_counts"));
    EXPECT_TRUE(rank.exchange(message_of(PENSTOCK_BARRIER, 1)).ok());
  });
}

TEST(Loopback, ARankThatDiesIsNamedToThoseWhoWaitForIt) {
  on_ranks(plugin(), 4, [](LoopbackRank& rank, uint32_t r) {
    EXPECT_TRUE(rank.exchange(message_of(PENSTOCK_BARRIER, 1)).ok());
    if (r == 2) return rank.die();
    const Outcome outcome = rank.exchange(message_of(PENSTOCK_BARRIER, 2));
    EXPECT_EQ(outcome.code, PENSTOCK_PEER_FAILED);
    EXPECT_NE(outcome.message.find("rank 2 (rank 2 of the world) left"), std::string::npos)
        << outcome.message;
  });
}

TEST(Loopback, AbortEndsTheTicketsOfAllRanks) {
  on_ranks(plugin(), 3, [](LoopbackRank& rank, uint32_t r) {
    if (r == 1) rank.table.abort(rank.self, rank.channel);  // the others wait, or come later
    const Outcome outcome = rank.exchange(message_of(PENSTOCK_BARRIER, 2));
    EXPECT_EQ(outcome.code, PENSTOCK_ABORTED);
    EXPECT_NE(outcome.message.find("aborted by rank 1"), std::string::npos) << outcome.message;
  });
}

TEST(Loopback, AMessageThatIsNotDoneInTimeNamesTheSilentRanks) {
  on_ranks(plugin(), 3, [](LoopbackRank& rank, uint32_t r) {
    if (r != 1) {
      auto message = message_of(PENSTOCK_BARRIER, 1);
      message.deadline_us = 1000;
      const Outcome outcome = rank.exchange(message);
      EXPECT_EQ(outcome.code, PENSTOCK_DEADLINE_EXCEEDED);
      EXPECT_NE(outcome.message.find("1"), std::string::npos);
    }
    // Rank 1 stays until both have given up.
    EXPECT_TRUE(rank.exchange(message_of(PENSTOCK_BARRIER, 2)).ok());
  });
}

}  // namespace
}  // namespace penstock::test::loopback_test
