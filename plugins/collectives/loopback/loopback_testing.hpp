// For tests: ranks on the loopback transport, each on a thread of its own, without the core.
#pragma once

#include <testing/gtest.hpp>
#include <testing/messages.hpp>

#include <penstock/collective.h>

#include <atomic>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace penstock::test {

constexpr uint64_t kPatience = 30'000'000;  // us; a test that waits longer fails

inline penstock_message message_of(uint32_t pattern, uint64_t tag,
                                   uint32_t dtype = PENSTOCK_FLOAT32) {
  return empty_message(pattern, tag, dtype, kPatience);
}

// One rank: joined, with a channel over the whole world.
class LoopbackRank {
 public:
  LoopbackRank(const LoadedPlugin& plugin, const std::string& hub, uint32_t rank, uint32_t size,
               const std::string& hosts = "")
      : table(plugin.collective()) {
    const OptionSettings settings{{"hub", hub.c_str()},
                                  {"rank", static_cast<int>(rank)},
                                  {"size", static_cast<int>(size)},
                                  {"hosts", hosts.c_str()}};
    const OptionValues values(*plugin.module, settings);
    check(take(table.create(values.data(), values.size(), &self)));
    world.struct_size = sizeof world;
    check(take(table.join(self, kPatience, &world)));
    std::vector<uint32_t> all(size);
    std::iota(all.begin(), all.end(), 0u);
    channel = open(all, 1);
  }
  ~LoopbackRank() {
    if (self == nullptr) return;
    table.close(self, channel);
    table.leave(self, 0);
    table.destroy(self);
  }
  LoopbackRank(const LoopbackRank&) = delete;

  penstock_channel* open(const std::vector<uint32_t>& members, uint64_t id) {
    penstock_group group{};
    group.struct_size = sizeof group;
    group.id = id;
    group.world_ranks = members.data();
    const std::vector<uint32_t> hosts(members.size());
    group.hosts = hosts.data();
    group.size = static_cast<uint32_t>(members.size());
    group.level = PENSTOCK_LEVEL_WORLD;
    for (uint32_t r = 0; r < group.size; ++r)
      if (members[r] == world.rank) group.rank = r;
    penstock_channel* opened = nullptr;
    check(take(table.open(self, &group, nullptr, nullptr, kPatience, &opened)));
    return opened;
  }
  Outcome exchange(const penstock_message& message) { return carry(table, self, channel, message); }
  // Ends this rank without saying goodbye to the others.
  void die() {
    table.close(self, channel);
    table.destroy(std::exchange(self, nullptr));
  }

  const penstock_collective& table;
  void* self = nullptr;
  penstock_world world{};
  penstock_channel* channel = nullptr;

 private:
  static void check(const Outcome& outcome) {
    if (!outcome.ok()) throw std::runtime_error(outcome.message);
  }
};

// Runs `body` on `size` ranks at once. Each call uses a new hub name, so that tests never meet.
inline void on_ranks(const LoadedPlugin& plugin, uint32_t size,
                     const std::function<void(LoopbackRank&, uint32_t rank)>& body) {
  static std::atomic<int> n_hubs{0};
  const std::string hub = "test " + std::to_string(n_hubs++);
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      try {
        LoopbackRank rank(plugin, hub, r, size);
        body(rank, r);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << r << ": " << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace penstock::test
