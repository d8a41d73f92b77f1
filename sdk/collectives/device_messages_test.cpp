// Tests messages in memory of a device, over a wire of threads: the algorithms never touch this
// memory, because it is closed to all code but the wire.
#include "device_memory.hpp"
#include "threads_testing.hpp"

#include <gtest/gtest.h>
#include <support/worlds.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace penstock::collectives {
namespace {

// Memory that is mapped twice: no code may touch it at the address that messages have.
class ClosedMemory {
 public:
  ClosedMemory() {
    const int file = memfd_create("closed", 0);
    EXPECT_EQ(ftruncate(file, kBytes), 0);
    closed_ = map(file, PROT_NONE);
    open_ = map(file, PROT_READ | PROT_WRITE);
    close(file);
  }
  ~ClosedMemory() {
    munmap(closed_, kBytes);
    munmap(open_, kBytes);
  }
  ClosedMemory(const ClosedMemory&) = delete;
  ClosedMemory& operator=(const ClosedMemory&) = delete;

  float* closed() const { return reinterpret_cast<float*>(closed_); }
  float* open() const { return reinterpret_cast<float*>(open_); }
  bool holds(const void* address) const { return address >= closed_ && address < closed_ + kBytes; }
  char* opened(const void* address) const {
    return open_ + (static_cast<const char*>(address) - closed_);
  }

 private:
  static constexpr size_t kBytes = size_t(64) << 20;
  static char* map(int file, int access) {
    return static_cast<char*>(mmap(nullptr, kBytes, access, MAP_SHARED, file, 0));
  }
  char* closed_;
  char* open_;
};

// The wire of a library that supports devices: events state which memory is a device's.
class DeviceWire : public ThreadWire {
 public:
  DeviceWire(Board& board, uint32_t rank) : ThreadWire(board, rank) {}

  void send(Ticket& ticket, const Event& event, uint64_t match, const void* data) override {
    ThreadWire::send(ticket, event, match, reached(event, data));
  }
  void receive(Ticket& ticket, const Event& event, uint64_t match, void* data) override {
    ThreadWire::receive(ticket, event, match, reached(event, data));
  }
  ClosedMemory sends, receives;

 private:
  char* reached(const Event& event, const void* data) const {
    for (const ClosedMemory* memory : {&sends, &receives}) {
      if (!memory->holds(data)) continue;
      EXPECT_TRUE(event.on_device);
      return memory->opened(data);
    }
    EXPECT_FALSE(event.on_device);
    return static_cast<char*>(const_cast<void*>(data));
  }
};

constexpr penstock_exec kOnDevice = [] {
  penstock_exec exec{};
  exec.struct_size = sizeof exec;
  exec.device_type = PENSTOCK_DEVICE_CUDA;
  return exec;
}();

penstock_message device_message_of(const Rank& me, uint32_t pattern) {
  const auto& wire = static_cast<const DeviceWire&>(*me.channel.wire);
  penstock_message message = message_of(pattern, 5);
  message.exec = &kOnDevice;
  message.send = wire.sends.closed();
  message.receive = wire.receives.closed();
  return message;
}

constexpr uint64_t kUnits[] = {0, 1, 500, 20'000, 100'001};
constexpr float kUntouched = -1;

class DeviceMessages : public ::testing::TestWithParam<uint32_t> {
 protected:
  // Calls body(rank, data to send, room to receive); both are the wire's twins.
  void on_all_ranks(const std::function<void(Rank&, float*, float*)>& body) {
    const auto make_wire = [](Board& board, uint32_t rank) {
      return std::make_unique<DeviceWire>(board, rank);
    };
    for (const Sizes& sizes : {Sizes{1024, 5000}, Sizes{4096, 0}})
      run_ranks(GetParam(), sizes, make_wire, [&](Rank& me) {
        me.channel.takes_devices = true;
        const auto& wire = static_cast<const DeviceWire&>(*me.channel.wire);
        body(me, wire.sends.open(), wire.receives.open());
      });
  }
};

TEST_P(DeviceMessages, GathersBringEveryCountToItsPlaceButThisRanksOwn) {
  on_all_ranks([](Rank& me, float* mine, float* received) {
    for (const uint64_t unit : kUnits)
      for (const bool exact : {false, true}) {
        const uint64_t room = unit * me.size + 5;
        std::vector<uint64_t> counts(me.size, room), offsets(me.size);
        for (uint32_t r = 0; r < me.size; ++r) {
          offsets[r] = r * room;
          if (exact) counts[r] = unit * r;
        }
        auto message = device_message_of(me, PENSTOCK_ALL_GATHER);
        message.count = unit * me.rank;
        message.receive_counts = counts.data();
        message.receive_offsets = offsets.data();
        if (exact) message.flags |= PENSTOCK_MESSAGE_EXACT_COUNTS;
        std::fill(mine, mine + message.count, float(me.rank + 1));
        std::fill(received, received + me.size * room, kUntouched);
        EXPECT_EQ(me.exchange(message), "");
        for (uint32_t r = 0; r < me.size; ++r) {
          ASSERT_EQ(counts[r], unit * r);
          const float* const first = received + offsets[r];
          const bool is_own = r == me.rank;
          EXPECT_EQ(std::count(first, first + room, float(r + 1)),
                    is_own ? 0 : std::ptrdiff_t(counts[r]));
          EXPECT_EQ(first[is_own ? 0 : counts[r]], kUntouched);
        }
      }
  });
}

TEST_P(DeviceMessages, AllToAllsBroadcastsAndPairsMoveItToo) {
  on_all_ranks([](Rank& me, float* mine, float* received) {
    for (const uint64_t unit : kUnits) {
      const uint64_t room = unit + 1;
      std::vector<uint64_t> send_counts(me.size, unit), counts(me.size, room), offsets(me.size);
      for (uint32_t r = 0; r < me.size; ++r) {
        offsets[r] = r * room;
        std::fill(mine + r * unit, mine + (r + 1) * unit, float(10 * me.rank + r));
      }
      auto message = device_message_of(me, PENSTOCK_ALL_TO_ALL);
      message.count = unit * me.size;
      message.send_counts = send_counts.data();
      message.receive_counts = counts.data();
      message.receive_offsets = offsets.data();
      std::fill(received, received + me.size * room, kUntouched);
      EXPECT_EQ(me.exchange(message), "");
      for (uint32_t r = 0; r < me.size; ++r)
        EXPECT_EQ(std::count(received + offsets[r], received + offsets[r] + room,
                             float(10 * r + me.rank)),
                  r == me.rank ? 0 : std::ptrdiff_t(unit));

      const uint32_t root = me.size - 1;
      message = device_message_of(me, PENSTOCK_BROADCAST);
      message.count = unit;
      message.peer = root;
      std::fill(mine, mine + unit, float(me.rank));
      std::fill(received, received + unit, kUntouched);
      EXPECT_EQ(me.exchange(message), "");
      const float expected = me.rank == root ? kUntouched : float(root);
      EXPECT_EQ(std::count(received, received + unit, expected), std::ptrdiff_t(unit));

      if (me.size == 1 || me.rank > 1) continue;
      uint64_t came = 0;
      message = device_message_of(me, me.rank == 0 ? PENSTOCK_SEND : PENSTOCK_RECEIVE);
      message.count = room;
      message.peer = 1 - me.rank;
      message.receive_counts = &came;
      std::fill(mine, mine + room, 7.0f);
      EXPECT_EQ(me.exchange(message), "");
      if (me.rank == 1) {
        EXPECT_EQ(std::count(received, received + came, 7.0f), std::ptrdiff_t(room));
      }
    }
  });
}

TEST_P(DeviceMessages, RanksThatDisagreeWhereItLiesHearItAndTheChannelLivesOn) {
  if (GetParam() == 1) GTEST_SKIP() << "needs two ranks";
  on_all_ranks([](Rank& me, float* mine, float* received) {
    for (const uint64_t count : {3, 100'000}) {
      std::vector<uint64_t> counts(me.size, count), offsets(me.size);
      for (uint32_t r = 0; r < me.size; ++r) offsets[r] = r * count;
      auto message = device_message_of(me, PENSTOCK_ALL_GATHER);
      message.count = count;
      message.receive_counts = counts.data();
      message.receive_offsets = offsets.data();
      if (me.rank == 1) {
        message.exec = nullptr;
        message.send = mine;
        message.receive = received;
      }
      const std::string wrong = me.exchange(message);
      for (const char* part :
           {"ranks disagree on the memory: rank ", "rank 1 has a host's", " has a device's"})
        EXPECT_NE(wrong.find(part), std::string::npos) << wrong;
    }
    EXPECT_EQ(me.exchange(message_of(PENSTOCK_BARRIER, 3)), "");
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, DeviceMessages, penstock::test::worlds({1, 2, 3, 4, 8}),
                         [](const auto& size) { return std::to_string(size.param); });

TEST(DeviceMessage, OfAWireThatTakesNoneOrToAddUpIsRefusedAtOnce) {
  const auto make_wire = [](Board& board, uint32_t rank) {
    return std::make_unique<DeviceWire>(board, rank);
  };
  run_ranks(1, {4096, 0}, make_wire, [](Rank& me) {
    auto message = device_message_of(me, PENSTOCK_BROADCAST);
    message.count = 3;
    EXPECT_NE(me.exchange(message).find("memory of a device, which this transport does not take"),
              std::string::npos);
    me.channel.takes_devices = true;
    EXPECT_EQ(me.exchange(message), "");
    message.pattern = PENSTOCK_ALL_REDUCE;
    EXPECT_NE(me.exchange(message).find("memory of a device, and this transport adds up in host"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace penstock::collectives
