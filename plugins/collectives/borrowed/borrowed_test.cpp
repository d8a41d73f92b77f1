// The borrowed plugin between ranks that are threads of this process. As a frontend would, the
// tests hand the frames from the door of each rank to the door of the other rank.
#include "borrowed.h"

#include <testing/gtest.hpp>
#include <testing/messages.hpp>

#include <penstock/collective.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

namespace penstock::test {
namespace {

constexpr uint64_t kPatience = 30'000'000;  // us

const LoadedPlugin& plugin() {
  static const LoadedPlugin loaded = load_plugin(PENSTOCK_PLUGIN_FILE);
  return loaded;
}

const penstock_borrowed_door& door() {
  return *static_cast<const penstock_borrowed_door*>(
      plugin().collective().extension(nullptr, sdk::str(PENSTOCK_BORROWED_DOOR)));
}

penstock_message all_reduce(uint64_t tag, std::vector<float>& values) {
  penstock_message message{};
  message.struct_size = sizeof message;
  message.id = message.tag = tag;
  message.pattern = PENSTOCK_ALL_REDUCE;
  message.dtype = PENSTOCK_FLOAT32;
  message.reduction = PENSTOCK_REDUCE_SUM;
  message.send = message.receive = values.data();
  message.count = values.size();
  message.deadline_us = kPatience;
  return message;
}

class Rank {
 public:
  Rank(uint32_t rank, uint32_t size)
      : instance(plugin(), {}), relay(door().open(rank, size, nullptr)) {
    world.struct_size = sizeof world;
    world.rank = rank;
    world.size = size;
    world.hosts = hosts.data();
    PENSTOCK_EXPECT_OK(instance.table().join(instance.self(), kPatience, &world));
  }
  ~Rank() { door().close(relay); }
  Rank(const Rank&) = delete;

  penstock_status* open(uint64_t id, uint64_t timeout_us = kPatience) {
    const std::vector<uint32_t> ranks{0, 1, 2, 3};
    penstock_group group{};
    group.struct_size = sizeof group;
    group.id = id;
    group.world_ranks = ranks.data();
    group.hosts = hosts.data();
    group.rank = world.rank;
    group.size = world.size;
    return instance.table().open(instance.self(), &group, nullptr, nullptr, timeout_us, &channel);
  }
  Outcome carry(const penstock_message& message) {
    return test::carry(instance.table(), instance.self(), channel, message);
  }
  void leave() {
    instance.table().close(instance.self(), channel);
    instance.table().leave(instance.self(), 0);
    door().end(relay);
  }

  Instance<penstock_collective> instance;
  const std::vector<uint32_t> hosts = std::vector<uint32_t>(4, 0);
  penstock_world world{};
  penstock_borrowed_relay* relay;
  penstock_channel* channel = nullptr;
};

// Moves frames from one rank to another until there are no more, and counts the receives that the
// receiver has posted, because there must be as many farewells.
std::thread line(Rank& from, Rank& to, bool has_farewells = true) {
  return std::thread([&from, &to, has_farewells] {
    uint64_t bytes = 0;
    uint64_t posted = door().n_receives;
    std::vector<char> room(door().frame_bytes);
    while (const void* frame = door().next(from.relay, to.world.rank, &bytes)) {
      ASSERT_LE(bytes, room.size());
      std::memcpy(room.data(), frame, bytes);
      ASSERT_GT(posted, 0u);
      --posted;
      posted += door().came(to.relay, from.world.rank, room.data());
    }
    EXPECT_EQ(posted, has_farewells ? 0u : door().n_receives);
  });
}

TEST(Borrowed, SumsAreInRankOrderWhateverTheirSize) {
  constexpr uint32_t kRanks = 3;
  std::vector<std::unique_ptr<Rank>> ranks;
  for (uint32_t r = 0; r < kRanks; ++r) ranks.push_back(std::make_unique<Rank>(r, kRanks));
  std::vector<std::thread> lines;
  for (auto& from : ranks)
    for (auto& to : ranks)
      if (from != to) lines.push_back(line(*from, *to));
  std::vector<std::thread> threads;
  for (auto& rank : ranks)
    threads.emplace_back([&rank] {
      PENSTOCK_ASSERT_OK(rank->open(5));
      for (const size_t n : {0u, 1u, 700u, 5000u, 1'000'003u}) {
        std::vector<float> values(n);
        const auto value = [](uint32_t r, size_t i) {
          return 0.1f * float((i + r) % 7) + float(r);
        };
        for (size_t i = 0; i < n; ++i) values[i] = value(rank->world.rank, i);
        const Outcome outcome = rank->carry(all_reduce(n, values));
        EXPECT_TRUE(outcome.ok()) << outcome.message;
        for (size_t i = 0; i < n; ++i)
          ASSERT_EQ(values[i], (value(0, i) + value(1, i)) + value(2, i)) << i << " of " << n;
      }
      rank->leave();
    });
  for (auto& thread : threads) thread.join();
  for (auto& thread : lines) thread.join();
}

TEST(Borrowed, NothingBorrowedIsSaidWithWhatToDo) {
  Instance<penstock_collective> instance(plugin(), {});
  penstock_world world{};
  world.struct_size = sizeof world;
  world.size = 1;
  EXPECT_TRUE(fails_with(instance.table().join(instance.self(), 1000, &world),
                         PENSTOCK_FAILED_PRECONDITION, "lend_process_group()"));
}

TEST(Borrowed, AnotherRankThanTheLaunchersIsRefused) {
  Instance<penstock_collective> instance(plugin(), {});
  penstock_borrowed_relay* relay = door().open(1, 2, nullptr);
  penstock_world world{};
  world.struct_size = sizeof world;
  world.size = 2;
  EXPECT_TRUE(fails_with(instance.table().join(instance.self(), 1000, &world),
                         PENSTOCK_INVALID_ARGUMENT, "is rank 1 of 2"));
  door().close(relay);
}

TEST(Borrowed, AGroupThatOneMemberDoesNotOpenTimesOutWithItsName) {
  Rank first(0, 2);
  EXPECT_TRUE(fails_with(first.open(1, 20'000), PENSTOCK_DEADLINE_EXCEEDED, "rank 1 has not come"));
}

// The first rank has sent its part, and waits for the part of the second rank.
TEST(Borrowed, ARankThatIsGoneIsNamedByWhoWaitsForIt) {
  for (const bool leaves : {true, false}) {
    Rank first(0, 2), second(1, 2);
    std::thread there = line(first, second, leaves), back = line(second, first);
    std::thread opening([&] { PENSTOCK_EXPECT_OK(second.open(1)); });
    PENSTOCK_ASSERT_OK(first.open(1));
    opening.join();
    std::vector<float> values(100'000);
    std::thread waiting([&] {
      const Outcome outcome = first.carry(all_reduce(1, values));
      EXPECT_EQ(outcome.code, PENSTOCK_PEER_FAILED);
      const std::string why = leaves ? "it has left the run" : "the cable";
      EXPECT_NE(outcome.message.find("rank 1 of the run is gone: " + why), std::string::npos)
          << outcome.message;
    });
    if (!leaves) door().lost(first.relay, 1, sdk::str("the cable"));
    if (leaves) second.leave();
    waiting.join();
    if (!leaves) second.leave();
    first.leave();
    back.join();
    there.join();
  }
}

// It takes the second rank's farewell before it learns that its own part has left.
TEST(Borrowed, WhoLeavesAtOnceLeavesNobodyWithoutItsPart) {
  Rank first(0, 2), second(1, 2);
  std::thread back = line(second, first);
  const auto sum = [](Rank& rank) {
    std::vector<float> values{1.0f, 2.0f};
    PENSTOCK_ASSERT_OK(rank.open(1));
    const Outcome outcome = rank.carry(all_reduce(1, values));
    EXPECT_TRUE(outcome.ok()) << outcome.message;
    EXPECT_EQ(values, (std::vector<float>{2.0f, 4.0f}));
    rank.leave();
  };
  std::thread slow([&] { sum(first); });
  std::thread quick([&] { sum(second); });
  for (int frame = 0; frame < 2; ++frame) {  // a hello and its part
    uint64_t bytes = 0;
    EXPECT_EQ(door().came(second.relay, 0, door().next(first.relay, 1, &bytes)), 1u);
  }
  quick.join();
  back.join();
  std::thread there = line(first, second);
  slow.join();
  there.join();
}

TEST(Borrowed, AFrameLongerThanAnyIsRefusedUnread) {
  Rank first(0, 2);
  const uint64_t label[3] = {0, 0, door().frame_bytes};
  EXPECT_EQ(door().came(first.relay, 1, label), 0u);
  EXPECT_TRUE(fails_with(first.open(1), PENSTOCK_PEER_FAILED,
                         "another part of the program uses "
                         "this tag"));
}

}  // namespace
}  // namespace penstock::test
