// The declarations of the ucx plugin, and how it joins; messages between processes are tested in
// tests/transports.
#include <support/listening.hpp>
#include <testing/gtest.hpp>

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>

#include <cstdlib>
#include <string>

namespace penstock::test {
namespace {

const LoadedPlugin& plugin() {
  static const LoadedPlugin loaded = load_plugin(PENSTOCK_PLUGIN_FILE);
  return loaded;
}

struct Ucx {
  explicit Ucx(const char* transports = "", const char* devices = "",
               const char* device_memory = "auto", const char* ports = "")
      : instance(plugin(), {{"transports", transports},
                            {"devices", devices},
                            {"device_memory", device_memory},
                            {"ports", ports}}) {}
  penstock_status* join(uint32_t rank, uint32_t size) {
    world.struct_size = sizeof world;
    world.hosts = hosts;
    world.rank = rank;
    world.size = size;
    return instance.table().join(instance.self(), 1'000'000, &world);
  }
  penstock_status* open() {
    const uint32_t zero = 0;
    penstock_group group{};
    group.struct_size = sizeof group;
    group.world_ranks = group.hosts = &zero;
    group.size = 1;
    return instance.table().open(instance.self(), &group, nullptr, nullptr, 1000, &channel);
  }
  Instance<penstock_collective> instance;
  const uint32_t hosts[2] = {0, 0};
  penstock_world world{};
  penstock_channel* channel = nullptr;
};

// A device through which other hosts can connect; empty if there is none.
std::string outer_device() {
  std::string name;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return name;
  for (const ifaddrs* one = first; one != nullptr && name.empty(); one = one->ifa_next)
    if (one->ifa_addr != nullptr && one->ifa_addr->sa_family == AF_INET &&
        (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0)
      name = one->ifa_name;
  freeifaddrs(first);
  return name;
}

TEST(Ucx, IsToldWhoThereIsAndPromisesRankOrder) {
  const Ucx ucx;
  penstock_collective_traits traits{};
  traits.struct_size = sizeof traits;
  PENSTOCK_EXPECT_OK(ucx.instance.table().describe(ucx.instance.self(), &traits));
  EXPECT_EQ(traits.flags,
            uint32_t{PENSTOCK_COLLECTIVE_TRANSPORT | PENSTOCK_COLLECTIVE_SAME_BITS |
                     PENSTOCK_COLLECTIVE_RANK_ORDER | PENSTOCK_COLLECTIVE_IS_NOTIFIED |
                     PENSTOCK_COLLECTIVE_TAKES_FINISHED});
}

// The UCX of these tests may move memory of devices.
TEST(Ucx, ThatIsAskedForMemoryOfDevicesKnowsOnlyWhenItHasStarted) {
  const auto types_of = [](const Ucx& ucx) {
    penstock_collective_traits traits{};
    traits.struct_size = sizeof traits;
    PENSTOCK_EXPECT_OK(ucx.instance.table().describe(ucx.instance.self(), &traits));
    return traits.device_types;
  };
  const uint64_t cpu = uint64_t{1} << PENSTOCK_DEVICE_CPU;
  const uint64_t both = cpu | uint64_t{1} << PENSTOCK_DEVICE_CUDA;
  Ucx asked("tcp,self");  // a list without transports to devices
  EXPECT_EQ(types_of(asked), both);
  PENSTOCK_ASSERT_OK(asked.join(0, 1));
  EXPECT_EQ(types_of(asked), cpu);
  asked.instance.table().leave(asked.instance.self(), 0);
  Ucx trusted("tcp,self", "", "yes");
  PENSTOCK_ASSERT_OK(trusted.join(0, 1));
  EXPECT_EQ(types_of(trusted), both);
  trusted.instance.table().leave(trusted.instance.self(), 0);
  EXPECT_EQ(types_of(Ucx("", "", "no")), cpu);
}

TEST(Ucx, RanksWithoutAStoreCannotFindEachOther) {
  Ucx ucx;
  EXPECT_TRUE(fails_with(ucx.join(0, 2), PENSTOCK_FAILED_PRECONDITION, "was given none"));
}

TEST(Ucx, AGroupIsOpenedBetweenJoinAndLeaveOnly) {
  Ucx ucx;
  EXPECT_TRUE(fails_with(ucx.open(), PENSTOCK_FAILED_PRECONDITION, "must join"));
  for (int i = 0; i < 2; ++i) {
    PENSTOCK_ASSERT_OK(ucx.join(0, 1));
    EXPECT_TRUE(fails_with(ucx.join(0, 1), PENSTOCK_FAILED_PRECONDITION, "already joined"));
    PENSTOCK_ASSERT_OK(ucx.open());
    ucx.instance.table().close(ucx.instance.self(), ucx.channel);
    ucx.instance.table().leave(ucx.instance.self(), 0);
  }
  EXPECT_TRUE(fails_with(ucx.open(), PENSTOCK_FAILED_PRECONDITION, "must join"));
}

TEST(Ucx, TransportsAndDevicesThatAreNotThereAreRefusedByName) {
  Ucx carrier_pigeons("pigeons");
  EXPECT_TRUE(fails_with(carrier_pigeons.join(0, 1), PENSTOCK_FAILED_PRECONDITION, "\"pigeons\""));
  Ucx nowhere("tcp", "nowhere0");
  EXPECT_TRUE(fails_with(nowhere.join(0, 1), PENSTOCK_FAILED_PRECONDITION, "\"nowhere0\""));
}

// If no rank lies on another host, UCX does not listen for other hosts, unless the user names a
// device.
TEST(Ucx, ListensOnLoopbackAloneUnlessADeviceIsNamed) {
  if (std::getenv("UCX_NET_DEVICES") != nullptr) GTEST_SKIP() << "UCX_NET_DEVICES names one";
  if (!loopback_has_ipv4()) GTEST_SKIP() << "there is no IPv4 on loopback";
  for (const char* list : {"", "all", "tcp,self", "^cma"}) {
    Ucx ucx(list);
    PENSTOCK_ASSERT_OK(ucx.join(0, 1));
    EXPECT_EQ(listening().size(), 1u) << list;
    for (const Listening& one : listening()) EXPECT_TRUE(one.is_loopback) << one.address;
    ucx.instance.table().leave(ucx.instance.self(), 0);
  }
  const std::string outer = outer_device();
  if (outer.empty()) return;
  Ucx named("tcp,self", outer.c_str());
  PENSTOCK_ASSERT_OK(named.join(0, 1));
  ASSERT_EQ(listening().size(), 1u);
  EXPECT_FALSE(listening()[0].is_loopback);
  named.instance.table().leave(named.instance.self(), 0);
}

TEST(Ucx, ListensAtThePortsThatAreGiven) {
  for (int i = 0; i < 3; ++i) {
    Ucx ucx("tcp,self", "", "no", "23460-23469");
    PENSTOCK_ASSERT_OK(ucx.join(0, 1));
    ASSERT_EQ(listening().size(), 1u);
    EXPECT_GE(listening()[0].port, 23460);
    EXPECT_LE(listening()[0].port, 23469);
    ucx.instance.table().leave(ucx.instance.self(), 0);
  }
  for (const char* wrong : {"0-5", "x", "30-20", "1-65536", "5-", "-5", "1-2-3", "1-2 "}) {
    const auto make = [&] { Ucx("", "", "auto", wrong); };
    EXPECT_ANY_THROW(make()) << wrong;
  }
}

// Each list is enough for a world of one rank.
TEST(Ucx, ListsOfTransportsAreTakenAsUcxTakesThem) {
  for (const char* list : {"", "all", "tcp,self", "tcp,posix,self", "^cma", "^sm", "^tcp,posix"}) {
    Ucx ucx(list);
    PENSTOCK_EXPECT_OK(ucx.join(0, 1));
    PENSTOCK_EXPECT_OK(ucx.open());
    ucx.instance.table().close(ucx.instance.self(), ucx.channel);
    ucx.instance.table().leave(ucx.instance.self(), 0);
  }
}

}  // namespace
}  // namespace penstock::test
