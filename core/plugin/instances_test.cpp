// A plugin's table must have the functions that its traits promise. A combination of traits that
// the core never uses is refused.
#include "core/plugin/instances.hpp"

#include "core/plugin/testing.hpp"

#include <penstock/draft/collective.h>
#include <penstock/draft/scheduler.h>

namespace penstock::instances_test {
namespace {

using test::contains;

penstock_collective_traits borrowed_traits;
penstock_status* describe_borrowed(void*, penstock_collective_traits* traits) {
  *traits = borrowed_traits;
  traits->struct_size = sizeof *traits;
  return nullptr;
}

TEST(Instance, ABorrowedTableIsCheckedLikeAPlugins) {
  penstock_collective table{};
  table.struct_size = sizeof table;
  table.describe = describe_borrowed;
  borrowed_traits = {};
  EXPECT_TRUE(contains(CollectiveInstance::borrow("borrowed", &table, nullptr).status().message(),
                       "neither TRANSPORT"));
  borrowed_traits.flags = PENSTOCK_COLLECTIVE_TRANSPORT | PENSTOCK_COLLECTIVE_COMPOSITE;
  EXPECT_TRUE(contains(CollectiveInstance::borrow("borrowed", &table, nullptr).status().message(),
                       "expected either"));
  borrowed_traits.flags = PENSTOCK_COLLECTIVE_TRANSPORT;
  EXPECT_TRUE(contains(CollectiveInstance::borrow("borrowed", &table, nullptr).status().message(),
                       "without join"));
  borrowed_traits.flags = PENSTOCK_COLLECTIVE_COMPOSITE | PENSTOCK_COLLECTIVE_MAY_REFUSE;
  EXPECT_TRUE(contains(CollectiveInstance::borrow("borrowed", &table, nullptr).status().message(),
                       "no returned"));
  borrowed_traits.flags = PENSTOCK_COLLECTIVE_COMPOSITE;
  borrowed_traits.patterns = PENSTOCK_PATTERN_BIT(PENSTOCK_ALL_REDUCE);
  borrowed_traits.device_patterns = PENSTOCK_PATTERN_BIT(PENSTOCK_BROADCAST);
  EXPECT_TRUE(contains(CollectiveInstance::borrow("borrowed", &table, nullptr).status().message(),
                       "patterns 0x20 for memory of devices, expected some of its patterns 0x2"));
  borrowed_traits.device_patterns = borrowed_traits.patterns;
  EXPECT_TRUE(CollectiveInstance::borrow("borrowed", &table, nullptr).ok());
  EXPECT_FALSE(CollectiveInstance::borrow("borrowed", nullptr, nullptr).ok());
}

// struct_size is the size of the host's struct, so a plugin of another version would write it
// wrongly.
TEST(Instance, DescribeLeavesTheSizeOfTheTraitsAlone) {
  penstock_collective table{};
  table.struct_size = sizeof table;
  table.describe = [](void*, penstock_collective_traits* traits) -> penstock_status* {
    traits->struct_size += 8;
    traits->flags = PENSTOCK_COLLECTIVE_COMPOSITE;
    return nullptr;
  };
  const auto made = CollectiveInstance::borrow("borrowed", &table, nullptr);
  ASSERT_FALSE(made.ok());
  EXPECT_TRUE(contains(made.status().message(), "changed the struct_size"))
      << made.status().message();
}

penstock_scheduler_traits scheduler_traits;
penstock_status* describe_scheduler(void*, penstock_scheduler_traits* traits) {
  *traits = scheduler_traits;
  traits->struct_size = sizeof *traits;
  return nullptr;
}

TEST(Instance, ASchedulerHasWhatItsTraitsPromise) {
  penstock_scheduler table{};
  table.struct_size = sizeof table;
  table.describe = describe_scheduler;
  const auto message = [&] {
    return std::string(SchedulerInstance::borrow("s", &table, nullptr).status().message());
  };
  scheduler_traits = {};
  EXPECT_TRUE(contains(message(), "no route"));
  scheduler_traits.routes = 1u << PENSTOCK_ROUTE_FLAT;
  EXPECT_EQ(message(), "");
  scheduler_traits.flags = PENSTOCK_SCHEDULER_MEASURES;
  EXPECT_TRUE(contains(message(), "no observe"));
  scheduler_traits.flags = 0;
  scheduler_traits.observe_every = 5;
  EXPECT_TRUE(contains(message(), "no observe"));
}

// Also with arrange in its table, because the core never calls arrange.
TEST(Instance, ASchedulerThatNegotiatesIsRefused) {
  penstock_scheduler table{};
  table.struct_size = sizeof table;
  table.describe = describe_scheduler;
  table.arrange = [](void*, const penstock_model*, const uint64_t*, uint64_t,
                     const penstock_plan_sink*) -> penstock_status* { return nullptr; };
  scheduler_traits = {};
  scheduler_traits.routes = 1u << PENSTOCK_ROUTE_FLAT;
  scheduler_traits.flags = PENSTOCK_SCHEDULER_NEGOTIATES;
  const auto made = SchedulerInstance::borrow("s", &table, nullptr);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), Code::unimplemented);
  EXPECT_TRUE(contains(made.status().message(), "NEGOTIATES, a draft"));
  EXPECT_TRUE(contains(made.status().message(), "penstock/draft/scheduler.h"));
  scheduler_traits.flags = 1u << 9;
  EXPECT_TRUE(contains(SchedulerInstance::borrow("s", &table, nullptr).status().message(),
                       "flags 0x200, expected bits of 0xb only"));
}

TEST(Instance, WhatACollectiveDeclaresAndNobodyActsOnIsRefused) {
  penstock_collective table{};
  table.struct_size = sizeof table;
  table.describe = describe_borrowed;
  const auto message = [&](uint32_t flags, uint32_t max_in_flight, uint64_t device_types) {
    borrowed_traits = {};
    borrowed_traits.flags = PENSTOCK_COLLECTIVE_COMPOSITE | flags;
    borrowed_traits.max_in_flight = max_in_flight;
    borrowed_traits.device_types = device_types;
    return std::string(CollectiveInstance::borrow("c", &table, nullptr).status().message());
  };
  const uint64_t cpu = 1u << PENSTOCK_DEVICE_CPU, cuda = 1u << PENSTOCK_DEVICE_CUDA;
  EXPECT_TRUE(contains(message(PENSTOCK_COLLECTIVE_DEVICE_COUNTS, 0, cpu), "DEVICE_COUNTS, a"));
  EXPECT_TRUE(contains(message(1u << 20, 0, cpu), "flags 0x100002, expected bits of"));
  EXPECT_TRUE(contains(message(0, 4, cpu), "4 messages in flight, expected 0"));
  EXPECT_TRUE(contains(message(0, 0, cuda), "device types 0x4 without the CPU (0x2)"));
  EXPECT_EQ(message(0, 0, cpu | cuda), "");
}

TEST(Instance, AMemoryWithUnknownFlagsOrForAnotherDeviceIsRefused) {
  static penstock_memory_traits traits;
  penstock_memory table{};
  table.struct_size = sizeof table;
  table.describe = [](void*, penstock_memory_traits* asked) -> penstock_status* {
    asked->device_types = traits.device_types;
    asked->flags = traits.flags;
    return nullptr;
  };
  const auto message = [&](uint32_t device, uint64_t flags) {
    traits.device_types = uint64_t{1} << device;
    traits.flags = flags;
    return std::string(MemoryInstance::borrow("m", &table, nullptr).status().message());
  };
  EXPECT_EQ(message(PENSTOCK_DEVICE_CPU, 0), "");
  EXPECT_TRUE(contains(message(PENSTOCK_DEVICE_CUDA, 0), "without the CPU"));
  EXPECT_TRUE(contains(message(PENSTOCK_DEVICE_CPU, 2), "flags 0x2, expected 0"));
}

}  // namespace
}  // namespace penstock::instances_test
