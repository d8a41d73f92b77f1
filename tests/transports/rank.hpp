// This process as a rank of a transport, loaded as a plugin.
#pragma once

#include <testing/gtest.hpp>
#include <testing/messages.hpp>

#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>

namespace penstock::test {

// Set by --native: the algorithm belongs to MPI, and sums are compared with a tolerance.
inline bool native = false;

inline std::string plugin_file;  // set by the first argument

inline const LoadedPlugin& plugin() {
  static const LoadedPlugin loaded = load_plugin(plugin_file);
  return loaded;
}

// Set by --short-segments: bytes per segment, so that small messages have many.
inline int segment_bytes = 0;

// Set by --small-sockets: bytes under way in a connection. 0: the transport's default.
inline int socket_bytes = 0;

// Fills in the data that the ranks have exchanged through the launcher's variables
// (rendezvous.cpp).
void tell(penstock_world& world);
// Tells the other ranks why this rank does not join, as the runtime does. Otherwise they would only
// report that its connection broke.
void give_up(const std::string& why);

// This process as a rank, which is joined as long as the object lives.
class Rank {
 public:
  explicit Rank(int small_bytes = 4096)
      : table(plugin().collective()),
        instance_(plugin().collective(), *plugin().module, settings(small_bytes)) {
    traits_.struct_size = sizeof traits_;
    require(table.describe(self(), &traits_));
    penstock_world world{};
    world.struct_size = sizeof world;
    const bool is_notified = (traits_.flags & PENSTOCK_COLLECTIVE_IS_NOTIFIED) != 0;
    if (is_notified) tell(world);
    const Outcome joined = take(table.join(self(), 30'000'000, &world));
    if (!joined.ok() && is_notified) give_up(joined.message);
    require(joined);
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
  penstock_channel* open(const std::vector<uint32_t>& members, uint64_t id,
                         uint64_t timeout_us = 30'000'000) {
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
    require(table.open(self(), &group, nullptr, nullptr, timeout_us, &opened));
    return opened;
  }
  Outcome exchange(const penstock_message& message) { return exchange(message, channel); }
  Outcome exchange(const penstock_message& message, penstock_channel* over) {
    return carry(table, self(), over, message);
  }
  bool is_process_global() const {
    return (traits_.flags & PENSTOCK_COLLECTIVE_PROCESS_GLOBAL) != 0;
  }
  void* self() const { return instance_.self(); }

  const penstock_collective& table;
  uint32_t rank = 0;
  uint32_t size = 1;
  std::vector<uint32_t> hosts;
  penstock_channel* channel = nullptr;
  bool aborted = false;

 private:
  static OptionSettings settings(int small_bytes) {
    OptionSettings all{{"small_bytes", small_bytes}, {"segment_bytes", segment_bytes}};
    if (native) all.emplace_back("algorithm", "native");
    if (socket_bytes != 0) all.emplace_back("socket_buffer_bytes", socket_bytes);
    return all;
  }
  static void require(penstock_status* status) { require(take(status)); }
  static void require(const Outcome& outcome) {
    if (!outcome.ok()) throw std::runtime_error(outcome.message);
  }
  penstock_collective_traits traits_{};
  Instance<penstock_collective> instance_;
};

inline std::unique_ptr<Rank> me;

inline penstock_message message_of(uint32_t pattern, uint64_t tag,
                                   uint32_t dtype = PENSTOCK_FLOAT32) {
  return empty_message(pattern, tag, dtype, 20'000'000);
}

// Values whose sum depends on the order of addition.
inline float value(uint32_t rank, uint64_t i) {
  static const std::vector<float> sines = [] {
    std::vector<float> table(1009);
    for (size_t j = 0; j < table.size(); ++j) table[j] = std::sin(static_cast<float>(j + 1));
    return table;
  }();
  static const float scales[7] = {1, 10, 100, 1e3, 1e4, 1e5, 1e6};
  return sines[(i * 31 + rank * 7) % 1009] * scales[(rank * 5 + i) % 7];
}

inline std::vector<float> values(uint32_t rank, uint64_t count) {
  std::vector<float> all(count);
  for (uint64_t i = 0; i < count; ++i) all[i] = value(rank, i);
  return all;
}

inline std::vector<float> ordered_sum(uint64_t count) {
  std::vector<float> sum(count);
  for (uint64_t i = 0; i < count; ++i) {
    float total = value(0, i);
    for (uint32_t r = 1; r < me->size; ++r) total += value(r, i);
    sum[i] = total;
  }
  return sum;
}

inline void expect_sum(const float* received, const std::vector<float>& expected) {
  if (expected.empty()) return;
  if (!native) {
    EXPECT_EQ(std::memcmp(received, expected.data(), expected.size() * sizeof(float)), 0)
        << "not the sum in ascending rank order, to the bit; " << expected.size() << " elements";
    return;
  }
  // MPI adds in its own order. The error is at most the rounding of the largest addend.
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(received[i], expected[i], 4.0);
}

}  // namespace penstock::test
