// Residents: consecutive steps on the set's stream, the producer's work and the reader's work,
// without a wait.

#include "core/device/resident.hpp"
#include "tests/device/simulated.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace penstock::resident_test {
namespace {

constexpr uint64_t kBytes = 1000, kLimitUs = 10'000'000;

class OneResident : public ::testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override {
    simulated::Settings settings;
    settings.seed = GetParam();
    simulated::reset(settings);
    auto made = Residents::make(device_, std::vector<uint64_t>{kBytes});
    auto looked = Event::make(device_);
    auto stream = Stream::make(device_, false);
    auto storage = DeviceMemory::make(device_, kBytes);
    ASSERT_TRUE(made.ok() && looked.ok() && stream.ok() && storage.ok());
    residents_ = std::move(*made);
    looked_ = std::move(*looked);
    stream_ = std::move(*stream);
    storage_ = std::move(*storage);
  }
  void TearDown() override {
    ASSERT_TRUE(residents_->drain(kLimitUs).ok() && stream_.wait().ok());
    residents_.reset();
    looked_ = Event();
    stream_ = Stream();
    storage_ = DeviceMemory();
    pinned_.clear();
    for (const auto& report : simulated::reports()) ADD_FAILURE() << report.sentence;
    for (const std::string& leak : simulated::leaks()) ADD_FAILURE() << leak;
    simulated::reset();
  }
  Resident& resident() { return residents_->resident(0); }
  std::byte* pinned(int value) {
    auto made = PinnedMemory::make(device_, kBytes);
    EXPECT_TRUE(made.ok());
    std::memset(made->data(), value, kBytes);
    return pinned_.emplace_back(std::move(*made)).data();
  }
  // The work of the set in a step, in two pieces: reads the gradient and then writes `result`.
  void work(const std::byte* result, std::byte* seen) {
    auto* const place = static_cast<std::byte*>(resident().work_place());
    for (const auto& [first, bytes] :
         {std::pair<uint64_t, uint64_t>(0, 300), {300, kBytes - 300}}) {
      const Status waits = resident().is_written() ? resident().wait_until_written() : Status();
      ASSERT_TRUE(waits.ok());
      ASSERT_TRUE(resident().begin(first, bytes).ok());
      const Stream& stream = residents_->stream();
      ASSERT_TRUE(residents_->inspection().copy_to_host(seen + first, place + first, bytes).ok());
      // The host has asked whether the inspection has ended.
      ASSERT_TRUE(looked_.record(residents_->inspection().handle()).ok());
      ASSERT_TRUE(looked_.hold_back(stream.handle()).ok());
      ASSERT_TRUE(stream.copy_to_device(place + first, result + first, bytes).ok());
      ASSERT_TRUE(resident().end().ok());
    }
  }
  void expect_all(const std::byte* memory, int value) {
    for (uint64_t i = 0; i < kBytes; ++i) ASSERT_EQ(memory[i], std::byte(value)) << i;
  }

  const Device device_{penstock_device, 0};
  std::unique_ptr<Residents> residents_;
  Event looked_;
  Stream stream_;
  DeviceMemory storage_;
  std::deque<PinnedMemory> pinned_;
};
INSTANTIATE_TEST_SUITE_P(Seeds, OneResident, ::testing::Values(1, 2, 3, 4, 5));

TEST_P(OneResident, WorkComesBehindTheProducerAndBeforeTheReader) {
  std::vector<std::pair<std::byte*, std::byte*>> steps;
  for (int step = 0; step < 6; ++step) {
    const auto& [seen, got] = steps.emplace_back(pinned(0), pinned(0));
    ASSERT_TRUE(stream_.copy_to_device(storage_.data(), pinned(10 * step), kBytes).ok());
    ASSERT_TRUE(resident().take(storage_.data(), stream_.handle()).ok());
    work(pinned(10 * step + 1), seen);
    ASSERT_TRUE(resident().hold_back_until_returned(stream_.handle()).ok());
    ASSERT_TRUE(stream_.copy_to_host(got, storage_.data(), kBytes).ok());
  }
  ASSERT_TRUE(stream_.wait().ok());
  for (int step = 0; step < 6; ++step) {
    expect_all(steps[size_t(step)].first, 10 * step);
    expect_all(steps[size_t(step)].second, 10 * step + 1);
  }
}

TEST_P(OneResident, ZerosAreThereWithAndWithoutStorage) {
  for (void* storage : {storage_.data(), static_cast<void*>(nullptr), storage_.data()}) {
    std::byte* const seen = pinned(7);
    ASSERT_TRUE(resident().take_zeros(storage).ok());
    EXPECT_EQ(resident().work_place() == storage_.data(), storage != nullptr);
    work(pinned(5), seen);
    ASSERT_TRUE(residents_->drain(kLimitUs).ok());
    expect_all(seen, 0);
    bool returned = false;
    ASSERT_TRUE(resident().has_returned(returned).ok());
    EXPECT_TRUE(returned);
  }
}

TEST_P(OneResident, MemoryThatStandsInIsTakenOnce) {
  using simulated::Call;
  const uint64_t before = simulated::calls(Call::kAllocate);
  for (int step = 0; step < 3; ++step) ASSERT_TRUE(resident().take_zeros(nullptr).ok());
  EXPECT_EQ(simulated::calls(Call::kAllocate) - before, 1u);
}

}  // namespace
}  // namespace penstock::resident_test
