// The mpi transport under a real mpirun, loaded as a plugin: every rank runs the same tests. With
// --native the algorithm is MPI's own, and sums are compared with a tolerance.
#include <support/plugin.hpp>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>

namespace penstock::test {
namespace {

bool native = false;

const LoadedPlugin& plugin() {
  static const LoadedPlugin loaded = load_plugin(PENSTOCK_PLUGIN_FILE);
  return loaded;
}

// This process as a rank; joined while it lives.
class Rank {
 public:
  explicit Rank(int small_bytes = 4096)
      : table(plugin().collective()),
        instance_(plugin().collective(), *plugin().module,
                  {{"algorithm", native ? "native" : "auto"}, {"small_bytes", small_bytes}}) {
    penstock_world world{};
    world.struct_size = sizeof world;
    require(table.join(self(), 30'000'000, &world));
    rank = world.rank;
    size = world.size;
    hosts.assign(world.hosts, world.hosts + size);
    std::vector<uint32_t> all(size);
    std::iota(all.begin(), all.end(), 0u);
    channel = open(all, 1);
  }
  ~Rank() {
    table.close(self(), channel);
    table.leave(self(), aborted ? 1 : 0);
  }
  penstock_channel* open(const std::vector<uint32_t>& members, uint64_t id) {
    penstock_group group{};
    group.struct_size = sizeof group;
    group.id = id;
    group.world_ranks = members.data();
    const std::vector<uint32_t> all_on_one(members.size());
    group.hosts = all_on_one.data();
    group.size = static_cast<uint32_t>(members.size());
    for (uint32_t r = 0; r < group.size; ++r)
      if (members[r] == rank) group.rank = r;
    penstock_channel* opened = nullptr;
    require(table.open(self(), &group, nullptr, nullptr, 30'000'000, &opened));
    return opened;
  }
  Outcome exchange(const penstock_message& message) { return exchange(message, channel); }
  Outcome exchange(const penstock_message& message, penstock_channel* over) {
    penstock_ticket* ticket = nullptr;
    Outcome outcome = take(table.submit(self(), over, &message, &ticket));
    if (!outcome.ok()) return outcome;
    uint32_t state = PENSTOCK_PENDING;
    while (outcome.ok() && state == PENSTOCK_PENDING) {
      outcome = take(table.progress(self(), ticket, &state));
      if (state == PENSTOCK_PENDING) std::this_thread::yield();
    }
    table.release(self(), ticket);
    return outcome;
  }
  void* self() const { return instance_.self(); }

  const penstock_collective& table;
  uint32_t rank = 0;
  uint32_t size = 1;
  std::vector<uint32_t> hosts;
  penstock_channel* channel = nullptr;
  bool aborted = false;

 private:
  static void require(penstock_status* status) {
    const Outcome outcome = take(status);
    if (!outcome.ok()) throw std::runtime_error(outcome.message);
  }
  Instance<penstock_collective> instance_;
};

std::unique_ptr<Rank> me;

penstock_message message_of(uint32_t pattern, uint64_t tag, uint32_t dtype = PENSTOCK_FLOAT32) {
  penstock_message message{};
  message.struct_size = sizeof message;
  message.id = tag + 1000;
  message.tag = tag;
  message.pattern = pattern;
  message.dtype = dtype;
  message.reduction = PENSTOCK_REDUCE_SUM;
  message.deadline_us = 20'000'000;
  return message;
}

// Values whose sum depends on the order of addition.
float value(uint32_t rank, uint64_t i) {
  static const std::vector<float> sines = [] {
    std::vector<float> table(1009);
    for (size_t j = 0; j < table.size(); ++j) table[j] = std::sin(static_cast<float>(j + 1));
    return table;
  }();
  static const float scales[7] = {1, 10, 100, 1e3, 1e4, 1e5, 1e6};
  return sines[(i * 31 + rank * 7) % 1009] * scales[(rank * 5 + i) % 7];
}

std::vector<float> values(uint32_t rank, uint64_t count) {
  std::vector<float> all(count);
  for (uint64_t i = 0; i < count; ++i) all[i] = value(rank, i);
  return all;
}

std::vector<float> ordered_sum(uint64_t count) {
  std::vector<float> sum(count);
  for (uint64_t i = 0; i < count; ++i) {
    float total = value(0, i);
    for (uint32_t r = 1; r < me->size; ++r) total += value(r, i);
    sum[i] = total;
  }
  return sum;
}

void expect_sum(const float* received, const std::vector<float>& expected) {
  if (!native) {
    EXPECT_EQ(std::memcmp(received, expected.data(), expected.size() * sizeof(float)), 0)
        << "not the sum in ascending rank order, to the bit; " << expected.size() << " elements";
    return;
  }
  // MPI adds in an order of its own: the error is bounded by the largest addend's rounding.
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(received[i], expected[i], 4.0);
}

// 0, 1, odd, on both sides of small_bytes, of one opening, one segment per share, a full window.
const std::vector<uint64_t> kCounts{0, 1, 7, 1024, 1025, 4001, 66'000, 300'001, 3'000'001};

TEST(MpiRun, AllReduceAddsInAscendingRankOrderToTheBit) {
  for (uint64_t count : kCounts) {
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

TEST(MpiRun, AllReduceWorksInPlace) {
  for (uint64_t count : kCounts) {
    auto data = values(me->rank, count);
    auto message = message_of(PENSTOCK_ALL_REDUCE, 3);
    message.send = message.receive = data.data();
    message.count = count;
    const Outcome outcome = me->exchange(message);
    ASSERT_TRUE(outcome.ok()) << outcome.message;
    expect_sum(data.data(), ordered_sum(count));
  }
}

TEST(MpiRun, EveryReductionAndWidthOfTypeWorks) {
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
    // 1 + 2^-8 in bfloat16 is lost to rounding unless the sum is rounded once: n * 2^-9 each.
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

TEST(MpiRun, ReduceScatterGivesEachRankItsShare) {
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

TEST(MpiRun, AllGatherTakesAnyCountThatFitsAndTellsHowManyCame) {
  for (uint64_t unit : {1, 600, 200'000}) {
    all_gather(unit, 0);
    all_gather(unit, PENSTOCK_MESSAGE_EXACT_COUNTS);
  }
}

TEST(MpiRun, AllToAllDeliversToEveryRankItsOwnElements) {
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

TEST(MpiRun, BroadcastReachesEverybodyFromEveryRoot) {
  for (uint32_t root = 0; root < me->size; ++root)
    for (uint64_t count : kCounts) {
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

TEST(MpiRun, SendReceiveAndBarrier) {
  const uint32_t next = (me->rank + 1) % me->size;
  const uint32_t before = (me->rank + me->size - 1) % me->size;
  for (uint64_t count : kCounts) {
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
    // Both tickets are driven, as the core does: a large send goes on only in its own progress.
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

TEST(MpiRun, MessagesAreMatchedByTagNotByOrder) {
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

TEST(MpiRun, GroupsMatchApartAndOutsidersAreNotNeeded) {
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

TEST(MpiRun, RanksThatDisagreeAllGetAMismatchAndTheChannelLivesOn) {
  if (native || me->size == 1) GTEST_SKIP() << "needs the direct algorithm and two ranks";
  // The odd one has more; small and large, and one of each.
  const std::vector<std::pair<uint64_t, uint64_t>> cases{
      {8, 9}, {1000, 2000}, {500'000, 500'001}, {100'000, 2'000'000}, {0, 1}};
  for (const auto& [usual, odd] : cases)
    for (uint32_t pattern : {PENSTOCK_ALL_REDUCE, PENSTOCK_REDUCE_SCATTER}) {
      const uint64_t count = me->rank == 1 ? odd : usual;
      auto data = values(me->rank, count);
      std::vector<float> received(count);
      std::vector<uint64_t> counts(me->size, 0);
      counts[0] = count;
      auto message = message_of(pattern, 3);
      message.send = data.data();
      message.receive = received.data();
      message.count = count;
      message.receive_counts = counts.data();
      const Outcome outcome = me->exchange(message);
      EXPECT_EQ(outcome.code, PENSTOCK_MISMATCH) << outcome.message;
      EXPECT_NE(outcome.message.find("tag 3"), std::string::npos) << outcome.message;
      EXPECT_NE(outcome.message.find("rank 1 has " + std::to_string(odd)), std::string::npos)
          << outcome.message;
    }
  auto message = message_of(me->rank == 0 ? PENSTOCK_BARRIER : PENSTOCK_ALL_REDUCE, 3);
  float one = 1;
  message.send = message.receive = &one;
  message.count = 1;
  EXPECT_EQ(me->exchange(message).code, PENSTOCK_MISMATCH);
  message.pattern = PENSTOCK_ALL_REDUCE;
  EXPECT_TRUE(me->exchange(message).ok());
  EXPECT_EQ(one, static_cast<float>(me->size));
}

TEST(MpiRun, TooLittleRoomFailsOnlyWhereItIsAndNamesTheSender) {
  if (me->size == 1) GTEST_SKIP() << "needs two ranks";
  for (uint64_t count : {30, 1'500'000}) {
    const auto mine = values(me->rank, count);
    std::vector<float> received(me->size * count);
    std::vector<uint64_t> counts(me->size, count), offsets(me->size);
    for (uint32_t s = 0; s < me->size; ++s) offsets[s] = count * s;
    if (me->rank == 0) counts[1] = count - 5;
    auto message = message_of(PENSTOCK_ALL_GATHER, 6);
    message.send = mine.data();
    message.receive = received.data();
    message.count = count;
    message.receive_counts = counts.data();
    message.receive_offsets = offsets.data();
    const Outcome outcome = me->exchange(message);
    EXPECT_EQ(outcome.code, me->rank == 0 ? PENSTOCK_MISMATCH : PENSTOCK_OK) << outcome.message;
    const std::string expected = "rank 1 sent " + std::to_string(count) +
                                 " elements, there is room for " + std::to_string(count - 5);
    if (me->rank == 0) {
      EXPECT_NE(outcome.message.find(expected), std::string::npos) << outcome.message;
    }
  }
  EXPECT_TRUE(me->exchange(message_of(PENSTOCK_BARRIER, 6)).ok());
}

TEST(MpiRun, ABroadcastOfAnotherSizeFailsForItsReceivers) {
  if (native || me->size == 1) GTEST_SKIP() << "needs the direct algorithm and two ranks";
  std::vector<float> data(300'001);
  auto message = message_of(PENSTOCK_BROADCAST, 6);
  message.send = message.receive = data.data();
  message.count = me->rank == 0 ? 300'001 : 300'000;
  const Outcome outcome = me->exchange(message);
  EXPECT_EQ(outcome.code, me->rank == 0 ? PENSTOCK_OK : PENSTOCK_MISMATCH) << outcome.message;
  EXPECT_TRUE(me->exchange(message_of(PENSTOCK_BARRIER, 6)).ok());
}

TEST(MpiRun, AMessageThatIsNotDoneInTimeNamesTheSilentRanksAndDoesNoHarmLater) {
  if (native || me->size < 3) GTEST_SKIP() << "needs the direct algorithm and three ranks";
  if (me->rank != 1) {
    std::vector<float> data(1000);
    auto message = message_of(PENSTOCK_RECEIVE, 1);
    message.deadline_us = 1000;
    message.receive = data.data();
    message.count = 1000;
    message.peer = 1;
    const Outcome outcome = me->exchange(message);
    EXPECT_EQ(outcome.code, PENSTOCK_DEADLINE_EXCEEDED);
    EXPECT_NE(outcome.message.find("ranks 1"), std::string::npos) << outcome.message;
  }
  EXPECT_TRUE(me->exchange(message_of(PENSTOCK_BARRIER, 2)).ok());
}

TEST(MpiRun, AnotherJoinIsRefusedWhileJoinedAndWorksAfterLeave) {
  try {
    const Rank second;
    ADD_FAILURE() << "two instances joined at the same time";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("another instance"), std::string::npos);
  }
  me.reset();
  me = std::make_unique<Rank>(0);  // no all-reduce is small from here on
  for (uint64_t count : {0, 1, 9, 5000}) {
    auto data = values(me->rank, count);
    auto message = message_of(PENSTOCK_ALL_REDUCE, 3);
    message.send = message.receive = data.data();
    message.count = count;
    ASSERT_TRUE(me->exchange(message).ok());
    expect_sum(data.data(), ordered_sum(count));
  }
}

// The last test: the world is unusable afterwards, and the process must end all the same.
TEST(MpiRun, AbortEndsTicketsAndTheProcessStillEnds) {
  EXPECT_TRUE(me->exchange(message_of(PENSTOCK_BARRIER, 2)).ok());
  std::vector<float> data(1'000'000);
  auto message = message_of(PENSTOCK_ALL_REDUCE, 3);
  message.send = message.receive = data.data();
  message.count = data.size();
  penstock_ticket* ticket = nullptr;
  const bool late = me->rank == 0 && me->size > 1;
  if (!late) {
    PENSTOCK_EXPECT_OK(me->table.submit(me->self(), me->channel, &message, &ticket));
  }
  me->table.abort(me->self(), me->channel);
  me->aborted = true;
  if (!late) {
    uint32_t state = PENSTOCK_PENDING;
    EXPECT_TRUE(
        fails_with(me->table.progress(me->self(), ticket, &state), PENSTOCK_ABORTED, "aborted"));
    me->table.release(me->self(), ticket);
  } else {
    EXPECT_TRUE(fails_with(me->table.submit(me->self(), me->channel, &message, &ticket),
                           PENSTOCK_ABORTED, "aborted"));
  }
  me.reset();
}

// Rank 0 prints as usual, the others only what fails.
class FailuresOnly : public ::testing::EmptyTestEventListener {
 public:
  explicit FailuresOnly(uint32_t rank) : rank_(rank) {}
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.failed())
      std::fprintf(stderr, "rank %u: %s:%d: %s\n", rank_, result.file_name(), result.line_number(),
                   result.summary());
  }

 private:
  uint32_t rank_;
};

int run(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  native = argc > 1 && std::string(argv[1]) == "--native";
  me = std::make_unique<Rank>();
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (me->rank != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly(me->rank));
  }
  const int failed = RUN_ALL_TESTS();
  me.reset();  // leaves before the process ends: only then is MPI finalised
  return failed;
}

}  // namespace
}  // namespace penstock::test

int main(int argc, char** argv) {
  return penstock::test::run(argc, argv);
}
