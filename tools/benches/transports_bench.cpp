// Compares transports message by message: sums and broadcasts of several sizes.
//
//   mpirun -np 2 -x MASTER_ADDR=ADDRESS -x MASTER_PORT=PORT bench_transports ROUNDS TRANSPORT...
//
// All ranks join over every named transport. The variables are for transports that must be told the
// ranks. Contestants take turns within each round. Rank 0 prints one JSON line: microseconds per
// message, by round.

#include "core/comm/rendezvous.hpp"

#include <testing/instances.hpp>

#include <chrono>
#include <cstdio>
#include <deque>
#include <numeric>
#include <thread>

namespace penstock::bench {
namespace {

struct Case {
  const char* name;
  uint32_t pattern;
  uint64_t bytes;
  int repeats;
};
constexpr Case kCases[] = {
    {"sum of 8 B", PENSTOCK_ALL_REDUCE, 8, 2000},
    {"sum of 64 kB", PENSTOCK_ALL_REDUCE, 64 << 10, 100},
    {"sum of 1 MB", PENSTOCK_ALL_REDUCE, 1 << 20, 10},
    {"sum of 16 MB", PENSTOCK_ALL_REDUCE, 16 << 20, 2},
    {"broadcast of 1 MB", PENSTOCK_BROADCAST, 1 << 20, 10},
    {"broadcast of 16 MB", PENSTOCK_BROADCAST, 16 << 20, 2},
};

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// This process as a rank of one transport.
class Contestant {
 public:
  Contestant(const std::string& name, JoinedRanks* joined)
      : name(name), plugin_(test::load_plugin("collective", name)), instance_(plugin_) {
    penstock_collective_traits traits{};
    traits.struct_size = sizeof traits;
    check(table().describe(instance_.self(), &traits));
    penstock_world world{};
    world.struct_size = sizeof world;
    if ((traits.flags & PENSTOCK_COLLECTIVE_IS_NOTIFIED) != 0) {
      if (joined == nullptr) throw std::runtime_error(name + " must be told who there is");
      world.hosts = joined->world.hosts().data();
      world.rank = joined->world.rank();
      world.size = joined->world.size();
      world.store = joined->control->store();
    }
    check(table().join(instance_.self(), 30'000'000, &world));
    rank = world.rank;
    std::vector<uint32_t> all(world.size);
    std::iota(all.begin(), all.end(), 0u);
    penstock_group group{};
    group.struct_size = sizeof group;
    group.world_ranks = all.data();
    group.hosts = world.hosts;
    group.rank = world.rank;
    group.size = world.size;
    group.level = PENSTOCK_LEVEL_WORLD;
    check(table().open(instance_.self(), &group, nullptr, nullptr, 30'000'000, &channel_));
  }
  ~Contestant() {
    table().close(instance_.self(), channel_);
    table().leave(instance_.self(), 0);
  }
  Contestant(const Contestant&) = delete;
  Contestant& operator=(const Contestant&) = delete;

  void exchange(uint32_t pattern, std::vector<float>& data) {
    penstock_message message{};
    message.struct_size = sizeof message;
    message.pattern = pattern;
    message.dtype = PENSTOCK_FLOAT32;
    message.reduction = PENSTOCK_REDUCE_SUM;
    message.deadline_us = 60'000'000;
    message.send = message.receive = data.data();
    message.count = data.size();
    penstock_ticket* ticket = nullptr;
    check(table().submit(instance_.self(), channel_, &message, &ticket));
    uint32_t state = PENSTOCK_PENDING;
    while (true) {
      check(table().progress(instance_.self(), ticket, &state));
      if (state == PENSTOCK_DONE) break;
      std::this_thread::yield();
    }
    table().release(instance_.self(), ticket);
  }

  const std::string name;
  uint32_t rank = 0;

 private:
  const penstock_collective& table() const { return instance_.table(); }
  static void check(penstock_status* status) { test::require(test::take(status), "the transport"); }

  test::LoadedPlugin plugin_;
  test::Instance<penstock_collective> instance_;
  penstock_channel* channel_ = nullptr;
};

void check_sums(Contestant& contestant, uint32_t size) {
  std::vector<float> data(100'000, float(contestant.rank + 1));
  contestant.exchange(PENSTOCK_ALL_REDUCE, data);
  for (const float value : data)
    if (value != float(size * (size + 1)) / 2)
      throw std::runtime_error(contestant.name + " sums wrong");
}

double microseconds(Contestant& contestant, const Case& one, std::vector<float>& data) {
  std::vector<float> nothing;
  contestant.exchange(PENSTOCK_BARRIER, nothing);
  const double start = seconds();
  for (int i = 0; i < one.repeats; ++i) contestant.exchange(one.pattern, data);
  contestant.exchange(PENSTOCK_BARRIER, nothing);
  return (seconds() - start) / one.repeats * 1e6;
}

JoinedRanks meet() {
  Result<std::optional<Rendezvous>> rendezvous = rendezvous_of();
  if (!rendezvous.ok()) throw std::runtime_error(std::string(rendezvous.status().message()));
  if (!rendezvous.value()) throw std::runtime_error("needs two ranks at least");
  Result<JoinedRanks> met = meet_at(*rendezvous.value(), {});
  if (!met.ok()) throw std::runtime_error(std::string(met.status().message()));
  return std::move(met.value());
}

void run(int rounds, const std::vector<std::string>& names) {
  JoinedRanks joined = meet();
  std::deque<Contestant> contestants;
  for (const std::string& name : names)
    check_sums(contestants.emplace_back(name, &joined), joined.world.size());
  std::string line;
  for (const Case& one : kCases) {
    std::vector<float> data(one.bytes / sizeof(float));
    std::vector<std::string> times(contestants.size());
    for (int round = -1; round < rounds; ++round)
      for (size_t i = 0; i < contestants.size(); ++i) {
        const double time = microseconds(contestants[i], one, data);
        if (round >= 0) times[i] += fmt::format("{}{:.3f}", round == 0 ? "" : ", ", time);
      }
    std::string all;
    for (size_t i = 0; i < contestants.size(); ++i)
      all += fmt::format("{}\"{}\": [{}]", i == 0 ? "" : ", ", contestants[i].name, times[i]);
    line += fmt::format("{}\"{}\": {{{}}}", line.empty() ? "" : ", ", one.name, all);
  }
  if (joined.world.rank() == 0) std::puts(fmt::format("{{{}}}", line).c_str());
}

}  // namespace
}  // namespace penstock::bench

int main(int argc, char** argv) {
  try {
    penstock::bench::run(argc > 1 ? std::atoi(argv[1]) : 5,
                         {argv + std::min(2, argc), argv + argc});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_transports: %s\n", error.what());
    return 1;
  }
}
