// The nccl transport over the simulated device: the data that it moves, its order, that the host
// never waits, and its end.
#include "nccl_testing.hpp"

#include <penstock/mean.h>

#include <atomic>
#include <cstring>

namespace penstock::test {
namespace {

constexpr uint64_t kSeeds = 12;

// Small whole numbers, whose sums have equal bits in every order.
float value(uint32_t rank, uint64_t i) {
  return static_cast<float>((rank + 1) * 100 + i % 97);
}
std::vector<float> values(uint32_t rank, uint64_t count) {
  std::vector<float> all(count);
  for (uint64_t i = 0; i < count; ++i) all[i] = value(rank, i);
  return all;
}
std::vector<float> sums(uint32_t size, uint64_t first, uint64_t count) {
  std::vector<float> all(count);
  for (uint32_t r = 0; r < size; ++r)
    for (uint64_t i = 0; i < count; ++i) all[i] += value(r, first + i);
  return all;
}

// Runs `body` in worlds of 1 to 4 ranks, under some seeds each. The results must be right, the host
// must not wait for a device between submit and done, and no CUDA call may be misused.
void everywhere(const std::function<void(NcclRank&)>& body) {
  for (uint32_t size = 1; size <= 4; ++size)
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      SCOPED_TRACE(sdk::text(size, " ranks, seed ", seed));
      on_ranks(size, seed, body);
      for (const simulated::Report& report : simulated::reports()) ADD_FAILURE() << report.sentence;
      if (::testing::Test::HasFailure()) return;
    }
}

class Nccl : public ::testing::Test {
 protected:
  void TearDown() override { simulated::reset(); }
};

TEST_F(Nccl, AllReduceSumsWhatTheProducerHasNotWrittenYet) {
  everywhere([](NcclRank& rank) {
    float* const sent = rank.put(values(rank.rank, 1000));  // queued, not run
    float* const received = rank.put(std::vector<float>(1000));
    penstock_message message = rank.message(PENSTOCK_ALL_REDUCE, 1);
    message.send = sent;
    message.receive = received;
    message.count = 1000;
    const uint64_t waits = simulated::waits_of_this_thread().total();
    EXPECT_TRUE(rank.carry(message).ok());
    EXPECT_EQ(simulated::waits_of_this_thread().total(), waits);
    EXPECT_EQ(NcclRank::get(received, 1000), sums(rank.size, 0, 1000));
  });
}

TEST_F(Nccl, ReduceScatterGivesEachRankItsPartWhateverTheirLengths) {
  for (const bool equal : {true, false})
    everywhere([&](NcclRank& rank) {
      std::vector<uint64_t> counts(rank.size, 5);
      if (!equal)
        for (uint32_t r = 0; r < rank.size; ++r) counts[r] = 3 * r;  // none for the first
      const uint64_t total = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
      const uint64_t first =
          std::accumulate(counts.begin(), counts.begin() + rank.rank, uint64_t{0});
      penstock_message message = rank.message(PENSTOCK_REDUCE_SCATTER, 1);
      message.send = rank.put(values(rank.rank, total));
      float* const received = rank.put(std::vector<float>(counts[rank.rank]));
      message.receive = received;
      message.count = total;
      message.receive_counts = counts.data();
      EXPECT_TRUE(rank.carry(message).ok());
      EXPECT_EQ(NcclRank::get(received, counts[rank.rank]),
                sums(rank.size, first, counts[rank.rank]));
    });
}

TEST_F(Nccl, AMeanOfSixteenBitFloatsNeedsNoSumThatFits) {
  everywhere([&](NcclRank& rank) {
    const std::vector<uint16_t> same(10, 0x78e2);  // 40000
    std::vector<float> pairs(same.size() / 2);     // `put` writes float32
    std::memcpy(pairs.data(), same.data(), same.size() * sizeof(uint16_t));
    float* const memory = rank.put(pairs);
    penstock_message message = rank.message(PENSTOCK_ALL_REDUCE, 1);
    message.dtype = PENSTOCK_FLOAT16;
    message.reduction = PENSTOCK_REDUCE_MEAN;
    message.send = message.receive = memory;
    message.count = same.size();
    EXPECT_TRUE(rank.carry(message).ok());
    const std::vector<float> got = NcclRank::get(memory, pairs.size());
    std::vector<uint16_t> mean(same.size());
    std::memcpy(mean.data(), got.data(), mean.size() * sizeof(uint16_t));
    for (const uint16_t bits : mean) EXPECT_NEAR(bits, same[0], rank.size);  // units
  });
}

TEST_F(Nccl, AllGatherTellsHowManyCameFromEach) {
  for (const uint32_t flags : {0u, uint32_t(PENSTOCK_MESSAGE_EXACT_COUNTS)})
    everywhere([&](NcclRank& rank) {
      const auto length = [](uint32_t of) { return uint64_t{10} * of; };  // none from the first
      constexpr uint64_t kRoom = 64;
      std::vector<uint64_t> counts(rank.size, kRoom), offsets(rank.size);
      for (uint32_t r = 0; r < rank.size; ++r) {
        offsets[r] = kRoom * r;
        if (flags != 0) counts[r] = length(r);
      }
      float* const received = rank.put(std::vector<float>(kRoom * rank.size));
      penstock_message message = rank.message(PENSTOCK_ALL_GATHER, 1);
      message.send = rank.put(values(rank.rank, length(rank.rank)));
      message.receive = received;
      message.count = length(rank.rank);
      message.receive_counts = counts.data();
      message.receive_offsets = offsets.data();
      message.flags = flags;
      EXPECT_TRUE(rank.carry(message).ok());
      for (uint32_t r = 0; r < rank.size; ++r) {
        EXPECT_EQ(counts[r], length(r));
        EXPECT_EQ(NcclRank::get(received + offsets[r], length(r)), values(r, length(r)));
      }
    });
}

TEST_F(Nccl, AllToAllGivesEachPairItsOwnLength) {
  for (const uint32_t flags : {0u, uint32_t(PENSTOCK_MESSAGE_EXACT_COUNTS)})
    everywhere([&](NcclRank& rank) {
      const auto length = [](uint32_t from, uint32_t to) { return uint64_t{(from + 2 * to) % 4}; };
      std::vector<float> sent;
      std::vector<uint64_t> send_counts, counts, offsets;
      for (uint32_t r = 0; r < rank.size; ++r) {
        send_counts.push_back(length(rank.rank, r));
        for (uint64_t i = 0; i < length(rank.rank, r); ++i)
          sent.push_back(static_cast<float>(rank.rank * 100 + r * 10 + i));
        counts.push_back(flags != 0 ? length(r, rank.rank) : 4);
        offsets.push_back(4 * r);
      }
      float* const received = rank.put(std::vector<float>(4 * rank.size));
      penstock_message message = rank.message(PENSTOCK_ALL_TO_ALL, 1);
      message.send = rank.put(sent);
      message.receive = received;
      message.count = sent.size();
      message.send_counts = send_counts.data();
      message.receive_counts = counts.data();
      message.receive_offsets = offsets.data();
      message.flags = flags;
      EXPECT_TRUE(rank.carry(message).ok());
      const std::vector<float> came = NcclRank::get(received, 4 * rank.size);
      for (uint32_t r = 0; r < rank.size; ++r) {
        EXPECT_EQ(counts[r], length(r, rank.rank));
        for (uint64_t i = 0; i < length(r, rank.rank); ++i)
          EXPECT_EQ(came[offsets[r] + i], static_cast<float>(r * 100 + rank.rank * 10 + i));
      }
    });
}

TEST_F(Nccl, BroadcastSendAndReceiveReachWhomTheyName) {
  everywhere([](NcclRank& rank) {
    const uint32_t root = rank.size - 1;
    float* const received = rank.put(std::vector<float>(7));
    penstock_message broadcast = rank.message(PENSTOCK_BROADCAST, 1);
    broadcast.send = rank.put(values(rank.rank, 7));
    broadcast.receive = received;
    broadcast.count = 7;
    broadcast.peer = root;
    EXPECT_TRUE(rank.carry(broadcast).ok());
    EXPECT_EQ(NcclRank::get(received, 7), values(root, 7));
    if (rank.size == 1) return;
    // Around a ring. If a send waited, the first rank would wait forever.
    uint64_t came = 0;
    penstock_message send = rank.message(PENSTOCK_SEND, 2);
    send.send = rank.put(values(rank.rank, rank.rank + 1));
    send.count = rank.rank + 1;
    send.peer = (rank.rank + 1) % rank.size;
    penstock_message receive = rank.message(PENSTOCK_RECEIVE, 3);
    receive.receive = received;
    receive.count = 7;
    receive.receive_counts = &came;
    receive.peer = (rank.rank + rank.size - 1) % rank.size;
    // A pair of ranks matches by order, so half of the ring receives first.
    const bool first = rank.rank % 2 == 0 && rank.rank + 1 != rank.size;
    penstock_ticket* const one = rank.submit(first ? send : receive);
    penstock_ticket* const other = rank.submit(first ? receive : send);
    EXPECT_TRUE(rank.finish(one).ok());
    EXPECT_TRUE(rank.finish(other).ok());
    EXPECT_EQ(came, receive.peer + 1);
    EXPECT_EQ(NcclRank::get(received, came), values(receive.peer, came));
  });
}

TEST_F(Nccl, NobodyPassesABarrierBeforeAllHaveCome) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    std::atomic<uint32_t> n_come{0};
    on_ranks(4, seed, [&](NcclRank& rank) {
      if (rank.rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ++n_come;
      EXPECT_TRUE(rank.carry(rank.message(PENSTOCK_BARRIER, 1)).ok());
      EXPECT_EQ(n_come, 4u);
    });
  }
}

// Messages whose counts travel and messages whose counts are known, finished from the last to the
// first.
TEST_F(Nccl, ManyMessagesUnderWayMatchByOrder) {
  everywhere([](NcclRank& rank) {
    constexpr uint64_t kMessages = 6, kCount = 8;
    std::vector<std::vector<uint64_t>> counts(kMessages, std::vector<uint64_t>(rank.size, kCount));
    std::vector<uint64_t> offsets(rank.size);
    for (uint32_t r = 0; r < rank.size; ++r) offsets[r] = kCount * r;
    std::vector<float*> received;
    std::vector<penstock_ticket*> tickets;
    for (uint64_t m = 0; m < kMessages; ++m) {
      const bool gathers = m % 2 == 0;
      received.push_back(rank.put(std::vector<float>(kCount * rank.size)));
      penstock_message message =
          rank.message(gathers ? PENSTOCK_ALL_GATHER : PENSTOCK_ALL_REDUCE, m);
      message.send = rank.put(values(rank.rank + static_cast<uint32_t>(m), kCount));
      message.receive = received[m];
      message.count = kCount;
      message.receive_counts = counts[m].data();
      message.receive_offsets = offsets.data();
      tickets.push_back(rank.submit(message));
    }
    for (uint64_t m = kMessages; m-- > 0;) {
      EXPECT_TRUE(rank.finish(tickets[m]).ok());
      const std::vector<float> came = NcclRank::get(received[m], kCount * rank.size);
      for (uint64_t i = 0; i < kCount; ++i) {
        float sum = 0;
        for (uint32_t r = 0; r < rank.size; ++r) sum += value(r + static_cast<uint32_t>(m), i);
        if (m % 2 == 1) {
          EXPECT_EQ(came[i], sum);
        }
        for (uint32_t r = 0; m % 2 == 0 && r < rank.size; ++r)
          EXPECT_EQ(came[offsets[r] + i], value(r + static_cast<uint32_t>(m), i));
      }
    }
  });
}

TEST_F(Nccl, MoreThanThereIsRoomForIsAMismatch) {
  on_ranks(2, 1, [](NcclRank& rank) {
    std::vector<uint64_t> counts(2, 3), offsets{0, 3};
    penstock_message message = rank.message(PENSTOCK_ALL_GATHER, 1);
    message.send = rank.put(values(rank.rank, 2 + 2 * rank.rank));
    message.receive = rank.put(std::vector<float>(6));
    message.count = 2 + 2 * rank.rank;
    message.receive_counts = counts.data();
    message.receive_offsets = offsets.data();
    const Outcome outcome = rank.carry(message);
    EXPECT_TRUE(outcome.code == PENSTOCK_MISMATCH || outcome.code == PENSTOCK_PEER_FAILED)
        << outcome.message;
    if (outcome.code == PENSTOCK_MISMATCH) {
      EXPECT_NE(outcome.message.find("rank 1 sends 4 elements"), std::string::npos)
          << outcome.message;
    }
  });
}

TEST_F(Nccl, MemoryOfTheHostOrOfAnotherDeviceIsRefused) {
  on_ranks(1, 1, [](NcclRank& rank) {
    penstock_message message = rank.message(PENSTOCK_BARRIER, 1);
    penstock_ticket* ticket = nullptr;
    rank.exec.device_id = 7;
    Outcome outcome = take(rank.table.submit(rank.self(), rank.channel, &message, &ticket));
    EXPECT_EQ(outcome.code, uint32_t(PENSTOCK_INVALID_ARGUMENT));
    EXPECT_NE(outcome.message.find("cuda:7"), std::string::npos) << outcome.message;
    rank.exec.device_type = PENSTOCK_DEVICE_CPU;
    outcome = take(rank.table.submit(rank.self(), rank.channel, &message, &ticket));
    EXPECT_NE(outcome.message.find("memory of the host"), std::string::npos) << outcome.message;
  });
}

TEST_F(Nccl, AnAbortEndsWhatWaitsForARankThatNeverComes) {
  std::atomic<bool> over{false};
  on_ranks(2, 1, [&](NcclRank& rank) {
    if (rank.rank == 1) {
      while (!over) std::this_thread::yield();
      return;
    }
    penstock_ticket* const ticket = rank.submit(rank.message(PENSTOCK_BARRIER, 1));
    uint32_t state = PENSTOCK_PENDING;
    for (int asked = 0; asked < 50; ++asked)
      EXPECT_TRUE(take(rank.table.progress(rank.self(), ticket, &state)).ok());
    EXPECT_EQ(state, uint32_t(PENSTOCK_PENDING));
    std::thread([&] { rank.table.abort(rank.self(), rank.channel); }).join();
    EXPECT_EQ(take(rank.table.progress(rank.self(), ticket, &state)).code,
              uint32_t(PENSTOCK_ABORTED));
    rank.table.release(rank.self(), ticket);
    over = true;
  });
}

TEST_F(Nccl, ADeadlineEndsTheChannelForAll) {
  std::atomic<bool> over{false};
  on_ranks(2, 1, [&](NcclRank& rank) {
    penstock_message message = rank.message(PENSTOCK_BARRIER, 1);
    if (rank.rank == 1) {
      while (!over) std::this_thread::yield();
      EXPECT_EQ(rank.carry(message).code, uint32_t(PENSTOCK_PEER_FAILED));
      return;
    }
    message.deadline_us = 20'000;
    const Outcome outcome = rank.carry(message);
    EXPECT_EQ(outcome.code, uint32_t(PENSTOCK_DEADLINE_EXCEEDED));
    EXPECT_NE(outcome.message.find("0.02 s"), std::string::npos) << outcome.message;
    penstock_ticket* ticket = nullptr;
    EXPECT_EQ(take(rank.table.submit(rank.self(), rank.channel, &message, &ticket)).code,
              uint32_t(PENSTOCK_DEADLINE_EXCEEDED));
    over = true;
  });
}

TEST_F(Nccl, AMemberThatDoesNotOpenIsWaitedForNoLongerThanTold) {
  simulated::Settings settings;
  settings.devices = 2;
  simulated::reset(settings);
  Store store;
  NcclRank rank(store, 0, 2);
  const Outcome outcome = rank.open(20'000);
  EXPECT_EQ(outcome.code, uint32_t(PENSTOCK_DEADLINE_EXCEEDED));
  EXPECT_NE(outcome.message.find("rank 0 of a group of 2"), std::string::npos) << outcome.message;
}

TEST_F(Nccl, AHostWithTooFewDevicesIsTold) {
  simulated::Settings settings;
  settings.devices = 1;
  simulated::reset(settings);
  Store store;
  try {
    const NcclRank rank(store, 0, 1, {{"device", 3}});
    FAIL() << "joined";
  } catch (const BrokenPromise& broken) {
    EXPECT_NE(std::string(broken.what()).find("cuda:3, and this host has 1 device;"),
              std::string::npos)
        << broken.what();
  }
}

TEST_F(Nccl, AMachineWithoutNcclIsTold) {
  Instance<penstock_collective> instance(nccl(), {{"library", "libthere_is_no_such.so"}});
  penstock_world world{};
  world.struct_size = sizeof world;
  const uint32_t host = 0;
  world.hosts = &host;
  world.size = 1;
  const Outcome outcome = take(instance.table().join(instance.self(), 1000, &world));
  EXPECT_EQ(outcome.code, uint32_t(PENSTOCK_FAILED_PRECONDITION));
  EXPECT_NE(outcome.message.find("libthere_is_no_such.so"), std::string::npos) << outcome.message;
}

}  // namespace
}  // namespace penstock::test
