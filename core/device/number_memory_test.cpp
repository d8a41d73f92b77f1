// The numbers of many buckets lie in few blocks of memory.
#include "core/device/number_memory.hpp"
#include "tests/device/simulated.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace penstock::number_memory_test {
namespace {

class NumberMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override { simulated::reset(); }
  void TearDown() override {
    for (const std::string& leak : simulated::leaks()) ADD_FAILURE() << leak;
    simulated::reset();
  }
  static uint64_t blocks() { return simulated::calls(simulated::Call::kHostAllocate); }
  const Device device_{penstock_device, 0};
};

TEST_F(NumberMemoryTest, GivesManyPlacesOfOneBlockThatDoNotMeet) {
  NumberMemory memory(device_);
  std::vector<NumberMemory::Place> places;
  for (int i = 0; i < 100; ++i) {
    auto place = memory.take(260);
    ASSERT_TRUE(place.ok());
    places.push_back(*place);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(places[i].there()) % 256, 0u);
    if (i == 0) continue;
    const auto* before = static_cast<const std::byte*>(places[i - 1].here());
    EXPECT_EQ(static_cast<const std::byte*>(places[i].here()) - before, 512);
  }
  EXPECT_EQ(blocks(), 1u);
  EXPECT_EQ(simulated::calls(simulated::Call::kAllocate), 1u);
}

TEST_F(NumberMemoryTest, TakesABlockMoreWhereOneIsFullOrTooSmall) {
  NumberMemory memory(device_);
  auto most = memory.take(64 * 1024 - 100);
  auto little = memory.take(1);
  auto large = memory.take(1 << 20);
  ASSERT_TRUE(most.ok() && little.ok() && large.ok());
  EXPECT_EQ(blocks(), 3u);
  static_cast<std::byte*>(large->here())[(1 << 20) - 1] = std::byte{1};
}

TEST_F(NumberMemoryTest, ABlockGoesWithTheLastPlaceOfIt) {
  NumberMemory::Place kept;
  {
    NumberMemory memory(device_);
    auto first = memory.take(8), second = memory.take(8);
    ASSERT_TRUE(first.ok() && second.ok());
    kept = *second;
  }
  *static_cast<uint64_t*>(kept.here()) = 1;
  EXPECT_EQ(simulated::calls(simulated::Call::kHostFree), 0u);
  kept = {};
  EXPECT_EQ(simulated::calls(simulated::Call::kHostFree), 1u);
}

}  // namespace
}  // namespace penstock::number_memory_test
