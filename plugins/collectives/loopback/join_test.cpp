// How ranks join a hub, which ranks are refused, and on which simulated hosts they are.
#include "loopback_testing.hpp"

#include <chrono>

namespace penstock::test::join_test {
namespace {

const LoadedPlugin& plugin() {
  static const LoadedPlugin loaded = load_plugin(PENSTOCK_PLUGIN_FILE);
  return loaded;
}

penstock_status* join_alone(const OptionSettings& settings, uint64_t timeout_us) {
  const auto& table = plugin().collective();
  const OptionValues values(*plugin().module, settings);
  void* self = nullptr;
  penstock_status* status = table.create(values.data(), values.size(), &self);
  if (status != nullptr) return status;
  penstock_world world{};
  world.struct_size = sizeof world;
  status = table.join(self, timeout_us, &world);
  table.destroy(self);
  return status;
}

TEST(Loopback, JoinTimesOutNamingTheMissingRanks) {
  EXPECT_TRUE(fails_with(join_alone({{"hub", "lonely"}, {"rank", 1}, {"size", 3}}, 2000),
                         PENSTOCK_DEADLINE_EXCEEDED, "for ranks 0, 2 of 3"));
}

TEST(Loopback, ARankOutsideTheWorldIsRefused) {
  EXPECT_TRUE(fails_with(join_alone({{"rank", 3}, {"size", 3}}, 0), PENSTOCK_INVALID_ARGUMENT,
                         "rank is 3"));
}

TEST(Loopback, AHubIsUsableAgainAfterEverybodyLeft) {
  for (int round = 0; round < 5; ++round) {
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < 3; ++r)
      threads.emplace_back([r] {
        LoopbackRank rank(plugin(), "again", r, 3);
        EXPECT_TRUE(rank.exchange(message_of(PENSTOCK_BARRIER, 1)).ok());
      });
    for (auto& thread : threads) thread.join();
  }
}

TEST(Loopback, RanksAreOnThePretendedHostsThatTheOptionSays) {
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < 5; ++r)
    threads.emplace_back([r] {
      LoopbackRank rank(plugin(), "hosts", r, 5, "0,1,0,2,1");
      EXPECT_EQ(std::vector<uint32_t>(rank.world.hosts, rank.world.hosts + 5),
                (std::vector<uint32_t>{0, 1, 0, 2, 1}));
    });
  for (auto& thread : threads) thread.join();
}

TEST(Loopback, HostsThatAreNotOneNumberPerRankInOrderAreRefused) {
  for (const char* hosts : {"0", "0,0,0", "0,", ",0", "0;0", "1,0", "0,2", "0,x", "-1,0", "0,0,"})
    try {
      LoopbackRank rank(plugin(), "odd hosts", 0, 2, hosts);
      ADD_FAILURE() << hosts;
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find("expected 2 numbers from 0"), std::string::npos)
          << error.what();
    }
}

TEST(Loopback, ARankWithOtherHostsThanThoseBeforeItIsRefused) {
  const auto join = [](const char* hosts, int rank, uint64_t timeout_us) {
    return take(join_alone({{"hub", "other hosts"}, {"rank", rank}, {"size", 2}, {"hosts", hosts}},
                           timeout_us));
  };
  Outcome first;
  std::thread waiting([&] { first = join("0,0", 0, 5'000'000); });
  std::this_thread::sleep_for(std::chrono::seconds(2));  // then the first has joined
  const Outcome second = join("0,1", 1, kPatience);
  waiting.join();
  EXPECT_EQ(second.code, PENSTOCK_MISMATCH) << second.message;
  EXPECT_NE(second.message.find("other hosts than earlier ranks"), std::string::npos);
  EXPECT_EQ(first.code, PENSTOCK_DEADLINE_EXCEEDED) << first.message;
}

}  // namespace
}  // namespace penstock::test::join_test
