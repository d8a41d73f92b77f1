// A transport between processes, loaded as a plugin. All ranks run these tests. Arguments: the
// plugin's file name, --native, --short-segments or --small-sockets, and the arguments of
// GoogleTest. The tests for bad messages, late ranks and aborts are in failure_ranks.cpp.
#include "printing.hpp"
#include "rank.hpp"

#include <cstdio>
#include <string>

namespace penstock::test {
namespace {

// 0, 1, odd counts, both sides of small_bytes, one opening, one segment per share, a full window.
std::vector<uint64_t> counts_to_try() {
  std::vector<uint64_t> counts{0, 1, 7, 1024, 1025, 4001, 66'000, 300'001};
  if (me->size <= 4) counts.push_back(3'000'001);  // more ranks than cores make it slow
  return counts;
}

TEST(Ranks, AllReduceAddsInAscendingRankOrderToTheBit) {
  for (uint64_t count : counts_to_try()) {
    const auto mine = values(me->rank, count);
    std::vector<float> received(count + 1, -5.0f);
    auto message = message_of(PENSTOCK_ALL_REDUCE, 3);
    message.send = mine.data();
    message.receive = received.data();
    message.count = count;
    const Outcome outcome = me->exchange(message);
    ASSERT_TRUE(outcome.ok()) << outcome.message;
    expect_sum(received.data(), ordered_sum(count));
    EXPECT_EQ(received[count], -5.0f) << "wrote behind the result";
  }
}

TEST(Ranks, AllReduceWorksInPlace) {
  for (uint64_t count : counts_to_try()) {
    auto data = values(me->rank, count);
    auto message = message_of(PENSTOCK_ALL_REDUCE, 3);
    message.send = message.receive = data.data();
    message.count = count;
    const Outcome outcome = me->exchange(message);
    ASSERT_TRUE(outcome.ok()) << outcome.message;
    expect_sum(data.data(), ordered_sum(count));
  }
}

TEST(Ranks, EveryReductionAndWidthOfTypeWorks) {
  for (uint64_t count : {3, 5000}) {
    std::vector<int8_t> bytes(count, static_cast<int8_t>(me->rank + 2)), least(count);
    auto message = message_of(PENSTOCK_ALL_REDUCE, 1, PENSTOCK_INT8);
    message.reduction = PENSTOCK_REDUCE_MIN;
    message.send = bytes.data();
    message.receive = least.data();
    message.count = count;
    ASSERT_TRUE(me->exchange(message).ok());
    EXPECT_EQ(least, std::vector<int8_t>(count, 2));
    std::vector<double> doubles(count, me->rank + 1.0), product(count);
    message = message_of(PENSTOCK_ALL_REDUCE, 1, PENSTOCK_FLOAT64);
    message.reduction = PENSTOCK_REDUCE_PRODUCT;
    message.send = doubles.data();
    message.receive = product.data();
    message.count = count;
    ASSERT_TRUE(me->exchange(message).ok());
    double factorial = 1;
    for (uint32_t r = 1; r <= me->size; ++r) factorial *= r;
    EXPECT_EQ(product, std::vector<double>(count, factorial));
    std::vector<uint16_t> halves(count, 0x3c00), sum(count);  // float16 ones
    message = message_of(PENSTOCK_ALL_REDUCE, 1, PENSTOCK_FLOAT16);
    message.send = halves.data();
    message.receive = sum.data();
    message.count = count;
    ASSERT_TRUE(me->exchange(message).ok());
    const uint16_t ones[9] = {0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700, 0x4800};
    EXPECT_EQ(sum, std::vector<uint16_t>(count, ones[me->size]));
  }
}

TEST(Ranks, ReduceScatterGivesEachRankItsShare) {
  for (uint64_t unit : {1, 1000, 90'000}) {
    std::vector<uint64_t> counts(me->size);
    uint64_t total = 0;
    uint64_t before = 0;
    for (uint32_t s = 0; s < me->size; ++s) {
      counts[s] = s == 1 ? 0 : unit * s + 17;
      if (s < me->rank) before += counts[s];
      total += counts[s];
    }
    const auto mine = values(me->rank, total);
    std::vector<float> received(counts[me->rank]);
    auto message = message_of(PENSTOCK_REDUCE_SCATTER, 1);
    message.send = mine.data();
    message.receive = received.data();
    message.count = total;
    message.receive_counts = counts.data();
    const Outcome outcome = me->exchange(message);
    ASSERT_TRUE(outcome.ok()) << outcome.message;
    const auto sum = ordered_sum(total);
    const auto first = sum.begin() + static_cast<std::ptrdiff_t>(before);
    expect_sum(received.data(),
               std::vector<float>(first, first + static_cast<std::ptrdiff_t>(received.size())));
  }
}

void all_gather(uint64_t unit, uint32_t flags) {
  const uint64_t room = unit * me->size + 5;
  const auto count_of = [&](uint32_t s) { return unit * s + (s == 0 ? 3 : 0); };
  const auto mine = values(me->rank, count_of(me->rank));
  std::vector<float> received(me->size * room, -1);
  std::vector<uint64_t> counts(me->size, room), offsets(me->size);
  for (uint32_t s = 0; s < me->size; ++s) {
    offsets[s] = room * s;
    if (flags != 0) counts[s] = count_of(s);
  }
  auto message = message_of(PENSTOCK_ALL_GATHER, 9);
  message.send = mine.data();
  message.receive = received.data();
  message.count = mine.size();
  message.receive_counts = counts.data();
  message.receive_offsets = offsets.data();
  message.flags = flags;
  const Outcome outcome = me->exchange(message);
  ASSERT_TRUE(outcome.ok()) << outcome.message;
  for (uint32_t s = 0; s < me->size; ++s) {
    ASSERT_EQ(counts[s], count_of(s));
    const auto theirs = values(s, counts[s]);
    EXPECT_EQ(std::memcmp(&received[offsets[s]], theirs.data(), counts[s] * 4), 0);
    EXPECT_EQ(received[offsets[s] + counts[s]], -1) << "wrote behind what came";
  }
}

TEST(Ranks, AllGatherTakesAnyCountThatFitsAndTellsHowManyCame) {
  for (uint64_t unit : {1, 600, 200'000}) {
    all_gather(unit, 0);
    all_gather(unit, PENSTOCK_MESSAGE_EXACT_COUNTS);
  }
}

TEST(Ranks, AllToAllDeliversToEveryRankItsOwnElements) {
  for (uint64_t unit : {1, 1000, 70'000}) {
    const uint64_t room = 5 * unit;
    std::vector<uint64_t> send_counts(me->size), counts(me->size, room), offsets(me->size);
    std::vector<uint32_t> mine;
    for (uint32_t s = 0; s < me->size; ++s) {
      send_counts[s] = (me->rank + 2 * s) % 5 * unit;
      offsets[s] = room * s;
      for (uint64_t i = 0; i < send_counts[s]; ++i)
        mine.push_back(static_cast<uint32_t>(100'000'000 * me->rank + 1'000'000 * s + i));
    }
    std::vector<uint32_t> received(room * me->size, 7);
    auto message = message_of(PENSTOCK_ALL_TO_ALL, 2, PENSTOCK_UINT32);
    message.send = mine.data();
    message.receive = received.data();
    message.count = mine.size();
    message.send_counts = send_counts.data();
    message.receive_counts = counts.data();
    message.receive_offsets = offsets.data();
    const Outcome outcome = me->exchange(message);
    ASSERT_TRUE(outcome.ok()) << outcome.message;
    for (uint32_t s = 0; s < me->size; ++s) {
      ASSERT_EQ(counts[s], (s + 2 * me->rank) % 5 * unit);
      for (uint64_t i = 0; i < counts[s]; ++i)
        ASSERT_EQ(received[room * s + i], 100'000'000 * s + 1'000'000 * me->rank + i);
    }
  }
}

TEST(Ranks, BroadcastReachesEverybodyFromEveryRoot) {
  for (uint32_t root = 0; root < me->size; ++root)
    for (uint64_t count : counts_to_try()) {
      auto data = values(me->rank, count);
      auto message = message_of(PENSTOCK_BROADCAST, 4);
      message.send = message.receive = data.data();
      message.count = count;
      message.peer = root;
      const Outcome outcome = me->exchange(message);
      ASSERT_TRUE(outcome.ok()) << outcome.message;
      ASSERT_EQ(data, values(root, count));
    }
}

TEST(Ranks, SendReceiveAndBarrier) {
  const uint32_t next = (me->rank + 1) % me->size;
  const uint32_t before = (me->rank + me->size - 1) % me->size;
  for (uint64_t count : counts_to_try()) {
    const auto mine = values(me->rank, count + me->rank);
    std::vector<float> room(count + 10);
    uint64_t came = 0;
    auto send = message_of(PENSTOCK_SEND, 5);
    send.send = mine.data();
    send.count = mine.size();
    send.peer = next;
    auto receive = message_of(PENSTOCK_RECEIVE, 5);
    receive.receive = room.data();
    receive.count = room.size();
    receive.peer = before;
    receive.receive_counts = &came;
    // The test drives both tickets, as the core does: a large send continues only in its own
    // progress.
    const penstock_message* const both[] = {&send, &receive};
    penstock_ticket* tickets[2] = {};
    uint32_t states[2] = {};
    for (int i = 0; i < 2; ++i) {
      PENSTOCK_ASSERT_OK(me->table.submit(me->self(), me->channel, both[i], &tickets[i]));
    }
    while (states[0] == PENSTOCK_PENDING || states[1] == PENSTOCK_PENDING)
      for (int i = 0; i < 2; ++i)
        PENSTOCK_ASSERT_OK(me->table.progress(me->self(), tickets[i], &states[i]));
    for (penstock_ticket* ticket : tickets) me->table.release(me->self(), ticket);
    room.resize(came);
    ASSERT_EQ(room, values(before, count + before));
  }
  EXPECT_TRUE(me->exchange(message_of(PENSTOCK_BARRIER, 5)).ok());
}

TEST(Ranks, MessagesAreMatchedByTagNotByOrder) {
  if (native) GTEST_SKIP() << "native messages match by order";
  constexpr uint32_t kMessages = 20;
  std::vector<std::vector<float>> data(kMessages);
  std::vector<penstock_ticket*> tickets(kMessages);
  for (uint32_t i = 0; i < kMessages; ++i) {
    const uint32_t tag = (i * 7 + me->rank * 3) % kMessages;  // every rank has its own order
    data[tag] = values(me->rank, 3000 * tag);
    auto message = message_of(PENSTOCK_ALL_REDUCE, tag);
    message.send = message.receive = data[tag].data();
    message.count = data[tag].size();
    PENSTOCK_EXPECT_OK(me->table.submit(me->self(), me->channel, &message, &tickets[tag]));
  }
  uint32_t n_done = 0;
  std::vector<bool> done(kMessages);
  while (n_done < kMessages)
    for (uint32_t tag = 0; tag < kMessages; ++tag) {
      if (done[tag]) continue;
      uint32_t state = PENSTOCK_PENDING;
      PENSTOCK_ASSERT_OK(me->table.progress(me->self(), tickets[tag], &state));
      if (state == PENSTOCK_PENDING) continue;
      done[tag] = true;
      ++n_done;
    }
  for (uint32_t tag = 0; tag < kMessages; ++tag) {
    expect_sum(data[tag].data(), ordered_sum(3000 * tag));
    me->table.release(me->self(), tickets[tag]);
  }
}

TEST(Ranks, GroupsMatchApartAndOutsidersAreNotNeeded) {
  std::vector<uint32_t> members;
  for (uint32_t r = me->rank % 2; r < me->size; r += 2) members.push_back(r);
  penstock_channel* half = me->open(members, 10 + me->rank % 2);
  int32_t mine = 1 << me->rank;
  int32_t sum = 0;
  auto message = message_of(PENSTOCK_ALL_REDUCE, 3, PENSTOCK_INT32);
  message.send = &mine;
  message.receive = &sum;
  message.count = 1;
  EXPECT_TRUE(me->exchange(message, half).ok());
  int32_t expected = 0;
  for (uint32_t r : members) expected |= 1 << r;
  EXPECT_EQ(sum, expected);
  me->table.close(me->self(), half);
}

int run(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc < 2) return 2;
  plugin_file = argv[1];
  native = argc > 2 && std::string(argv[2]) == "--native";
  if (argc > 2 && std::string(argv[2]) == "--short-segments") segment_bytes = 5000;
  if (argc > 2 && std::string(argv[2]) == "--small-sockets") socket_bytes = 16384;
  me = std::make_unique<Rank>();
  print_as_rank(me->rank);
  const int failed = RUN_ALL_TESTS();
  std::fflush(nullptr);
  // mpirun ends all processes when one process ends without finalising. Here all ranks have
  // reported.
  if (me->aborted) (void)me->exchange(message_of(PENSTOCK_BARRIER, 1));
  me.reset();  // leaves before the process ends, because only then is MPI finalised
  return failed;
}

}  // namespace
}  // namespace penstock::test

int main(int argc, char** argv) {
  return penstock::test::run(argc, argv);
}
