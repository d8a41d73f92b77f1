// StagingBuffers: consecutive steps of copies to the host and back, without a wait.

#include "core/device/staging.hpp"
#include "tests/device/simulated.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace penstock::staging_test {
namespace {

using simulated::Call;

constexpr uint64_t kLimitUs = 10'000'000;

class StagingBuffers : public ::testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override {
    simulated::Settings settings;
    settings.seed = GetParam();
    simulated::reset(settings);
  }
  void TearDown() override {
    for (const auto& report : simulated::reports()) ADD_FAILURE() << report.sentence;
    for (const std::string& leak : simulated::leaks()) ADD_FAILURE() << leak;
    simulated::reset();
  }
  const Device device_{penstock_device, 0};
};
INSTANTIATE_TEST_SUITE_P(Seeds, StagingBuffers, ::testing::Values(1, 2, 3, 4, 5));

void await_arrival(StagingBuffer& staging_buffer) {
  static uint64_t pass = 0;
  for (bool arrived = false; !arrived;)
    ASSERT_TRUE(staging_buffer.has_arrived(++pass, arrived).ok());
}

TEST_P(StagingBuffers, BringEveryStepsValuesThereAndBackThoughNobodyWaits) {
  constexpr uint64_t kBytes = 1000;
  auto staging = Staging::make(std::vector<Staging::Wanted>{{device_, kBytes}});
  ASSERT_TRUE(staging.ok()) << staging.status().message();
  auto stream = Stream::make(device_, false);
  auto memory = DeviceMemory::make(device_, kBytes);
  ASSERT_TRUE(stream.ok() && memory.ok());
  StagingBuffer& staging_buffer = (*staging)->staging_buffer(0);
  std::vector<PinnedMemory> given, got;
  for (int step = 0; step < 6; ++step) {
    for (auto* list : {&given, &got}) {
      auto pinned = PinnedMemory::make(device_, kBytes);
      ASSERT_TRUE(pinned.ok());
      list->push_back(std::move(*pinned));
    }
    std::memset(given.back().data(), 10 * step, kBytes);
    ASSERT_TRUE(stream->copy_to_device(memory->data(), given.back().data(), kBytes).ok());
    ASSERT_TRUE(staging_buffer.take(memory->data(), stream->handle()).ok());
    await_arrival(staging_buffer);
    for (uint64_t i = 0; i < kBytes; ++i) {
      ASSERT_EQ(staging_buffer.host()[i], std::byte(10 * step)) << i;
      staging_buffer.host()[i] = std::byte(10 * step + 1);
    }
    ASSERT_TRUE(staging_buffer.give(0, 400).ok());
    ASSERT_TRUE(staging_buffer.give(400, kBytes - 400).ok());
    ASSERT_TRUE(staging_buffer.hold_back_until_returned(stream->handle()).ok());
    ASSERT_TRUE(stream->copy_to_host(got.back().data(), memory->data(), kBytes).ok());
  }
  ASSERT_TRUE(stream->wait().ok());
  for (int step = 0; step < 6; ++step)
    for (uint64_t i = 0; i < kBytes; ++i)
      ASSERT_EQ(got[size_t(step)].data()[i], std::byte(10 * step + 1)) << step;
  EXPECT_TRUE((*staging)->drain(kLimitUs).ok());
}

// The host may write the zeros only when the last copy back has read the staging buffer.
TEST_P(StagingBuffers, ZerosWaitForTheLastCopyBack) {
  auto staging = Staging::make(std::vector<Staging::Wanted>{{device_, 64}});
  auto memory = DeviceMemory::make(device_, 64);
  auto got = PinnedMemory::make(device_, 64);
  auto stream = Stream::make(device_, false);
  ASSERT_TRUE(staging.ok() && memory.ok() && got.ok() && stream.ok());
  StagingBuffer& staging_buffer = (*staging)->staging_buffer(0);
  ASSERT_TRUE(staging_buffer.take_zeros(memory->data()).ok());
  await_arrival(staging_buffer);
  EXPECT_TRUE(staging_buffer.is_zero());
  std::memset(staging_buffer.host(), 7, 64);
  ASSERT_TRUE(staging_buffer.give(0, 64).ok());
  ASSERT_TRUE(staging_buffer.take_zeros(nullptr).ok());
  await_arrival(staging_buffer);
  std::memset(staging_buffer.host(), 0, 64);
  ASSERT_TRUE(staging_buffer.give(0, 64).ok()) << "nobody wants it";
  ASSERT_TRUE(stream->copy_to_host(got->data(), memory->data(), 64).ok());
  ASSERT_TRUE(stream->wait().ok());
  EXPECT_EQ(got->data()[63], std::byte(7));
  EXPECT_TRUE((*staging)->drain(kLimitUs).ok());
}

TEST_P(StagingBuffers, ALookAsksAboutFewCopies) {
  constexpr size_t kStagingBuffers = 50;
  auto staging = Staging::make(std::vector<Staging::Wanted>(kStagingBuffers, {device_, 16}));
  auto memory = DeviceMemory::make(device_, 16);
  ASSERT_TRUE(staging.ok() && memory.ok());
  for (size_t i = 0; i < kStagingBuffers; ++i)
    ASSERT_TRUE((*staging)->staging_buffer(i).take(memory->data(), nullptr).ok());
  size_t n_arrived = 0;
  for (uint64_t pass = 1; n_arrived < kStagingBuffers; ++pass) {
    const uint64_t before = simulated::calls(Call::kEventQuery);
    const size_t n_before = n_arrived;
    n_arrived = 0;
    bool some_is_missing = false;
    for (size_t i = 0; i < kStagingBuffers; ++i) {
      bool arrived = false;
      ASSERT_TRUE((*staging)->staging_buffer(i).has_arrived(pass, arrived).ok());
      EXPECT_FALSE(arrived && some_is_missing) << "they arrive in their order";
      some_is_missing = !arrived;
      n_arrived += arrived ? 1 : 0;
    }
    EXPECT_LE(simulated::calls(Call::kEventQuery) - before, n_arrived - n_before + 1);
  }
  EXPECT_TRUE((*staging)->drain(kLimitUs).ok());
}

TEST_P(StagingBuffers, OfADeviceThatIsLostCannotBeDrained) {
  auto staging = Staging::make(std::vector<Staging::Wanted>{{device_, 16}});
  ASSERT_TRUE(staging.ok());
  simulated::lose_device(0);
  EXPECT_EQ((*staging)->drain(kLimitUs).code(), Code::device_error);
  staging = Status();  // not in use, so only the test owns it
  simulated::reset();
}

}  // namespace
}  // namespace penstock::staging_test
