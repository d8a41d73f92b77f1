// Tests all patterns over a wire of threads, for several numbers of ranks. Under the thread
// sanitizer they show that ranks share only the data that the wire carries.
#include "direct.hpp"
#include "threads_testing.hpp"

#include <penstock/error.hpp>

#include <gtest/gtest.h>
#include <support/worlds.hpp>

#include <atomic>
#include <cmath>
#include <functional>
#include <numeric>
#include <thread>

namespace penstock::collectives {
namespace {

constexpr uint64_t kCounts[] = {0, 1, 7, 1024, 1025, 4001, 66'000};

// Values whose sum depends on the order of addition.
std::vector<float> values(uint32_t rank, uint64_t count) {
  std::vector<float> all(count);
  for (uint64_t i = 0; i < count; ++i)
    all[i] = std::sin(float(i % 1009 + 7 * rank + 1)) * std::pow(10.0f, float((rank * 5 + i) % 7));
  return all;
}

std::vector<float> ordered_sum(uint32_t size, uint64_t count) {
  std::vector<float> sum = values(0, count);
  for (uint32_t r = 1; r < size; ++r) {
    const auto theirs = values(r, count);
    for (uint64_t i = 0; i < count; ++i) sum[i] += theirs[i];
  }
  return sum;
}

class Collectives : public ::testing::TestWithParam<uint32_t> {
 protected:
  // Small segments and parts, so that short messages have many.
  void on_all_ranks(const std::function<void(Rank&)>& body, Sizes sizes) {
    const auto make_wire = [](Board& board, uint32_t rank) {
      return std::make_unique<ThreadWire>(board, rank);
    };
    run_ranks(GetParam(), sizes, make_wire, body);
  }
  void on_all_ranks(const std::function<void(Rank&)>& body) {
    on_all_ranks(body, {1024, 5000});
    on_all_ranks(body, {4096, 0});
  }
};

TEST_P(Collectives, AllReduceAddsInAscendingRankOrderToTheBit) {
  on_all_ranks([](Rank& me) {
    for (const uint64_t count : kCounts) {
      const auto mine = values(me.rank, count);
      std::vector<float> received(count), in_place = mine;
      auto message = message_of(PENSTOCK_ALL_REDUCE, 3);
      message.send = mine.data();
      message.receive = received.data();
      message.count = count;
      EXPECT_EQ(me.exchange(message), "");
      EXPECT_EQ(received, ordered_sum(me.size, count));
      message.send = message.receive = in_place.data();
      EXPECT_EQ(me.exchange(message), "");
      EXPECT_EQ(in_place, received);
    }
  });
}

TEST_P(Collectives, ReduceScatterGivesEachRankItsShare) {
  on_all_ranks([](Rank& me) {
    for (const uint64_t unit : {1, 9000}) {
      std::vector<uint64_t> counts(me.size);
      for (uint32_t r = 0; r < me.size; ++r) counts[r] = r == 1 ? 0 : unit * r + 17;
      const uint64_t total = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
      const uint64_t before =
          std::accumulate(counts.begin(), counts.begin() + me.rank, uint64_t{0});
      const auto mine = values(me.rank, total);
      std::vector<float> received(counts[me.rank]);
      auto message = message_of(PENSTOCK_REDUCE_SCATTER, 1);
      message.send = mine.data();
      message.receive = received.data();
      message.count = total;
      message.receive_counts = counts.data();
      EXPECT_EQ(me.exchange(message), "");
      const auto sum = ordered_sum(me.size, total);
      const auto first = sum.begin() + static_cast<std::ptrdiff_t>(before);
      EXPECT_TRUE(std::equal(received.begin(), received.end(), first));
    }
  });
}

// P times the largest number has no sum in 16 bits.
TEST_P(Collectives, MeansOfSixteenBitFloatsNeedNoSumThatFits) {
  on_all_ranks([](Rank& me) {
    for (const uint64_t count : kCounts) {
      const std::vector<uint16_t> same(count, 0x7bff);  // 65504
      std::vector<uint16_t> mean(count), in_place = same;
      auto message = message_of(PENSTOCK_ALL_REDUCE, 3);
      message.dtype = PENSTOCK_FLOAT16;
      message.reduction = PENSTOCK_REDUCE_MEAN;
      message.send = same.data();
      message.receive = mean.data();
      message.count = count;
      EXPECT_EQ(me.exchange(message), "");
      EXPECT_EQ(mean, same);
      message.send = message.receive = in_place.data();
      EXPECT_EQ(me.exchange(message), "");
      EXPECT_EQ(in_place, same);
      std::vector<uint64_t> counts(me.size, count);
      const std::vector<uint16_t> all(me.size * count, 0x7bff);
      message.pattern = PENSTOCK_REDUCE_SCATTER;
      message.send = all.data();
      message.receive = mean.data();
      message.count = all.size();
      message.receive_counts = counts.data();
      EXPECT_EQ(me.exchange(message), "");
      EXPECT_EQ(mean, same);
    }
  });
}

TEST_P(Collectives, GathersBringEveryCountToItsPlace) {
  on_all_ranks([](Rank& me) {
    for (const uint64_t unit : {1, 600, 20'000})
      for (const uint32_t pattern : {PENSTOCK_ALL_GATHER, PENSTOCK_ALL_TO_ALL}) {
        const bool to_all = pattern == PENSTOCK_ALL_GATHER;
        const uint64_t room = unit * me.size + 5;
        std::vector<uint64_t> counts(me.size, room), offsets(me.size), send_counts(me.size);
        for (uint32_t r = 0; r < me.size; ++r) {
          offsets[r] = r * room;
          send_counts[r] = unit * me.rank + (to_all ? 0 : r % 3);
        }
        const uint64_t count =
            to_all ? unit * me.rank
                   : std::accumulate(send_counts.begin(), send_counts.end(), uint64_t{0});
        std::vector<float> mine(count, float(me.rank + 1)), received(me.size * room, -1);
        auto message = message_of(pattern, 9);
        message.send = mine.data();
        message.receive = received.data();
        message.count = count;
        message.send_counts = send_counts.data();
        message.receive_counts = counts.data();
        message.receive_offsets = offsets.data();
        EXPECT_EQ(me.exchange(message), "");
        for (uint32_t r = 0; r < me.size; ++r) {
          ASSERT_EQ(counts[r], unit * r + (to_all ? 0 : me.rank % 3));
          const auto first = received.begin() + static_cast<std::ptrdiff_t>(offsets[r]);
          EXPECT_EQ(std::count(first, first + static_cast<std::ptrdiff_t>(room), float(r + 1)),
                    std::ptrdiff_t(counts[r]));
          EXPECT_EQ(received[offsets[r] + counts[r]], -1) << "wrote behind what came";
        }
      }
  });
}

TEST_P(Collectives, BroadcastReachesEverybodyFromEveryRoot) {
  on_all_ranks([](Rank& me) {
    for (uint32_t root = 0; root < me.size; ++root)
      for (const uint64_t count : kCounts) {
        auto data = values(me.rank, count);
        auto message = message_of(PENSTOCK_BROADCAST, 4);
        message.send = message.receive = data.data();
        message.count = count;
        message.peer = root;
        EXPECT_EQ(me.exchange(message), "");
        EXPECT_EQ(data, values(root, count));
      }
  });
}

TEST_P(Collectives, ASendMeetsItsReceiveAndABarrierMeetsAll) {
  on_all_ranks([](Rank& me) {
    for (const uint64_t count : kCounts) {
      const uint32_t before = (me.rank + me.size - 1) % me.size;
      const auto mine = values(me.rank, count);
      std::vector<float> room(count + 10);
      uint64_t came = 0;
      auto send = message_of(PENSTOCK_SEND, 5);
      send.send = mine.data();
      send.count = count;
      send.peer = (me.rank + 1) % me.size;
      auto receive = message_of(PENSTOCK_RECEIVE, 5);
      receive.receive = room.data();
      receive.count = room.size();
      receive.peer = before;
      receive.receive_counts = &came;
      Ticket* const tickets[] = {submit(me.channel, send), submit(me.channel, receive)};
      for (bool done = false; !done; std::this_thread::yield()) {
        const bool sent = progress(*tickets[0]);
        done = progress(*tickets[1]) && sent;
      }
      for (Ticket* const ticket : tickets) release(*ticket);
      room.resize(came);
      EXPECT_EQ(room, values(before, count));
    }
    EXPECT_EQ(me.exchange(message_of(PENSTOCK_BARRIER, 5)), "");
  });
}

// There are more messages than rings, and ranks submit them in opposite orders.
TEST_P(Collectives, ManySumsTogetherAreMatchedByTagNotByOrder) {
  constexpr uint32_t kMessages = 20;
  on_all_ranks([](Rank& me) {
    std::vector<std::vector<float>> data(kMessages);
    std::vector<Ticket*> tickets(kMessages);
    for (uint32_t i = 0; i < kMessages; ++i) {
      const uint32_t tag = (i * 7 + me.rank * 3) % kMessages;
      data[tag] = values(me.rank, 1000 * tag);
      auto message = message_of(PENSTOCK_ALL_REDUCE, tag);
      message.send = message.receive = data[tag].data();
      message.count = data[tag].size();
      tickets[tag] = submit(me.channel, message);
    }
    for (size_t left = kMessages; left > 0; std::this_thread::yield())
      for (uint32_t tag = 0; tag < kMessages; ++tag) {
        if (tickets[tag] == nullptr || !progress(*tickets[tag])) continue;
        release(*tickets[tag]);
        tickets[tag] = nullptr;
        --left;
        EXPECT_EQ(data[tag], ordered_sum(me.size, 1000 * tag));
      }
  });
}

TEST_P(Collectives, RanksThatDisagreeAllHearItAndTheChannelLivesOn) {
  if (GetParam() == 1) GTEST_SKIP() << "needs two ranks";
  on_all_ranks([](Rank& me) {
    for (const auto& [usual, odd] : {std::pair{8, 9}, {10'000, 70'000}, {0, 1}}) {
      std::vector<float> data(static_cast<size_t>(me.rank == 1 ? odd : usual));
      auto message = message_of(PENSTOCK_ALL_REDUCE, 3);
      message.send = message.receive = data.data();
      message.count = data.size();
      const std::string wrong = me.exchange(message);
      EXPECT_EQ(wrong.substr(0, 2), sdk::text(PENSTOCK_MISMATCH, ":")) << wrong;
      EXPECT_NE(wrong.find(sdk::text("rank 1 has ", odd)), std::string::npos) << wrong;
    }
    EXPECT_EQ(me.exchange(message_of(PENSTOCK_BARRIER, 3)), "");
  });
}

// The header of rank 1 announces segments that never come.
TEST(Message, AFailureThatIsKnownIsToldThoughAnnouncedDataNeverCome) {
  std::atomic<bool> told{false};
  const auto make_wire = [](Board& board, uint32_t rank) {
    return std::make_unique<ThreadWire>(board, rank);
  };
  run_ranks(2, {1024, 5000}, make_wire, [&](Rank& me) {
    std::vector<float> data(8);
    auto message = message_of(PENSTOCK_RECEIVE, 3);
    message.peer = 1;
    message.receive = data.data();
    message.count = data.size();
    if (me.rank == 0) {
      me.channel.patience = std::chrono::milliseconds(100);
      const std::string wrong = me.exchange(message);
      EXPECT_EQ(wrong.substr(0, 2), sdk::text(PENSTOCK_MISMATCH, ":")) << wrong;
      told = true;
      return;
    }
    Ticket& ticket = take_ticket(me.channel);
    ticket.channel = &me.channel;
    ticket.message = message;
    Header header{};
    header.id = message.id;
    header.pattern = PENSTOCK_SEND;
    header.dtype = message.dtype;
    header.count = 100'000;
    header.bytes = header.count * sizeof(float);
    header.segment = static_cast<uint32_t>(kLongSegment);
    std::vector<char> opening(sizeof header + kInlineBytes);
    std::memcpy(opening.data(), &header, sizeof header);
    send(ticket, {Kind::kOpeningOut, 0, 0, opening.size()}, opening.data());
    while (!told) std::this_thread::yield();
  });
}

// Rank 0 gives up while its receives are posted; only then the other ranks continue, and send.
TEST_P(Collectives, AfterAbortAndReleaseNothingIsWrittenIntoAReceiveBuffer) {
  if (GetParam() == 1) GTEST_SKIP() << "needs two ranks";
  constexpr uint64_t kCount = 50'000;
  std::atomic<uint32_t> n_begun{0}, n_ended{0};
  const auto given_up = [](Rank& me, Ticket& ticket) {
    me.channel.aborted = true;
    EXPECT_THROW((void)progress(ticket), sdk::Error);
    release(ticket);
  };
  on_all_ranks(
      [&](Rank& me) {
        const auto mine = values(me.rank, kCount);
        std::vector<float> received(me.size * kCount);
        std::vector<uint64_t> counts(me.size, kCount), offsets(me.size);
        for (uint32_t r = 0; r < me.size; ++r) offsets[r] = r * kCount;
        auto message = message_of(PENSTOCK_ALL_GATHER, 3);
        message.send = mine.data();
        message.receive = received.data();
        message.count = kCount;
        message.receive_counts = counts.data();
        message.receive_offsets = offsets.data();
        Ticket& ticket = *submit(me.channel, message);
        ++n_begun;
        while (n_begun < me.size) std::this_thread::yield();
        if (me.rank == 0) {
          for (int i = 0; i < 50; ++i) (void)progress(ticket);
          given_up(me, ticket);
          std::fill(received.begin(), received.end(), 0.5f);
          ++n_ended;
          while (n_ended < me.size) std::this_thread::yield();
          EXPECT_EQ(std::count(received.begin(), received.end(), 0.5f),
                    std::ptrdiff_t(received.size()));
          return;
        }
        while (n_ended == 0) std::this_thread::yield();
        for (int i = 0; i < 500; ++i) (void)progress(ticket);
        given_up(me, ticket);
        ++n_ended;
        while (n_ended < me.size) std::this_thread::yield();
      },
      {1024, 5000});
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, penstock::test::worlds({1, 2, 3, 4, 8}),
                         [](const auto& size) { return std::to_string(size.param); });

}  // namespace
}  // namespace penstock::collectives
