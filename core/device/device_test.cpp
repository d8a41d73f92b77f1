// The search for the table, the owners of objects on a device, and messages of errors.

#include "core/device/devices.hpp"
#include "core/device/table.hpp"
#include "tests/device/simulated.hpp"

#include <cuda_runtime_api.h>

#include <gtest/gtest.h>

#include <thread>

namespace penstock::device_test {
namespace {

constexpr int32_t kOutOfMemory = 2;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

class Simulated : public ::testing::Test {
 protected:
  void SetUp() override { simulated::reset(); }
  void TearDown() override {
    for (const auto& report : simulated::reports()) ADD_FAILURE() << report.sentence;
    for (const std::string& leak : simulated::leaks()) ADD_FAILURE() << leak;
    simulated::reset();
  }
  const Device device_{penstock_device, 1};
};

TEST(DeviceTable, AFileThatIsNotThereIsNamedWithWhatToDo) {
  const auto table = load_device_table("/nowhere/libpenstock_device_cuda.so");
  EXPECT_EQ(table.status().code(), Code::not_found);
  EXPECT_TRUE(
      contains(table.status().message(), "there is no /nowhere/libpenstock_device_cuda.so"));
  EXPECT_TRUE(contains(table.status().message(), "PENSTOCK_CUDA=ON")) << table.status().message();
}

TEST(DeviceTable, AFileThatIsNoneIsRefused) {
  const auto table = load_device_table("/proc/self/status");
  EXPECT_EQ(table.status().code(), Code::failed_precondition);
  EXPECT_TRUE(contains(table.status().message(), "/proc/self/status cannot be loaded ("))
      << table.status().message();
}

TEST(DeviceTable, OneThatIsTooSmallOrOfAnotherTypeIsRefused) {
  EXPECT_TRUE(check_device_table(penstock_device, "file").ok());
  penstock_device_table table = penstock_device;
  table.struct_size -= sizeof(void*);
  const std::string sizes = fmt::format("file has a device table of {} bytes, expected at least {}",
                                        table.struct_size, sizeof table);
  EXPECT_TRUE(contains(check_device_table(table, "file").message(), sizes)) << sizes;
  table = penstock_device;
  table.struct_size += 64;  // of a later, larger version
  EXPECT_TRUE(check_device_table(table, "file").ok());
  table.device_type = 7;
  EXPECT_TRUE(contains(check_device_table(table, "file").message(), "device type 7, expected 2"));
  EXPECT_FALSE(Devices(&table).find({PENSTOCK_DEVICE_CUDA, 0}).ok());
}

TEST_F(Simulated, DevicesAreFoundByNumber) {
  Devices devices(&penstock_device);
  const auto found = devices.find({PENSTOCK_DEVICE_CUDA, 1});
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found.value(), device_);
  EXPECT_EQ(found.value().name(), "cuda:1");
  for (const int32_t id : {-1, 2})
    EXPECT_EQ(devices.find({PENSTOCK_DEVICE_CUDA, id}).status().code(), Code::not_found) << id;
  EXPECT_TRUE(contains(devices.find({7, 0}).status().message(), "device type 7 is not known"));
}

TEST_F(Simulated, WhatIsMadeEndsWithItsOwnerAndMovesWithIt) {
  {
    auto event = Event::make(device_);
    auto stream = Stream::make(device_, true);
    auto memory = DeviceMemory::make(device_, 1000);
    auto pinned = PinnedMemory::make(device_, 0);
    for (const Status& status : {event.status(), stream.status(), memory.status(), pinned.status()})
      ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_NE(pinned->data(), nullptr);
    EXPECT_EQ(simulated::leaks().size(), 4u);
    DeviceMemory moved = std::move(*memory);
    Event other;
    other = std::move(*event);
    EXPECT_EQ(simulated::leaks().size(), 4u);
  }
  EXPECT_TRUE(simulated::leaks().empty());
}

TEST_F(Simulated, ErrorsNameTheDeviceTheActionAndTheNumber) {
  simulated::leave_memory(1, 4096);
  const auto memory = DeviceMemory::make(device_, 1 << 20);
  EXPECT_EQ(memory.status().code(), Code::out_of_memory);
  EXPECT_TRUE(
      contains(memory.status().message(), "cuda:1 does not get 1048576 bytes of its own memory"))
      << memory.status().message();
  simulated::fail_call(simulated::Call::kHostAllocate, 1, kOutOfMemory);
  EXPECT_TRUE(contains(PinnedMemory::make(device_, 8).status().message(), "pinned host memory"));
  simulated::fail_call(simulated::Call::kEventCreate, 1, kOutOfMemory);
  const auto event = Event::make(device_);
  EXPECT_EQ(event.status().code(), Code::device_error);
  EXPECT_TRUE(contains(event.status().message(), "cuda:1 cannot make an event: "))
      << event.status().message();
  EXPECT_TRUE(contains(event.status().message(), "(error 2)"));
}

TEST_F(Simulated, LeavesOtherDevicesWithoutAContext) {
  std::thread([&] {
    auto stream = Stream::make(device_, false);
    auto memory = DeviceMemory::make(device_, 4);
    ASSERT_TRUE(stream.ok() && memory.ok());
    EXPECT_TRUE(stream->clear(memory->data(), 4).ok());
    EXPECT_TRUE(stream->wait().ok());
    EXPECT_TRUE(device_.make_current().ok());
  }).join();
  EXPECT_EQ(simulated::contexts(), std::set<int>{1});
}

TEST_F(Simulated, IsTheDeviceOfAThreadFromWhenItIsMadeSo) {
  std::thread([&] {
    const auto current = [] {
      int id = -1;
      EXPECT_EQ(cudaGetDevice(&id), cudaSuccess);
      return id;
    };
    EXPECT_TRUE(Stream::make(device_, false).ok());
    EXPECT_EQ(current(), 0);
    EXPECT_TRUE(device_.make_current().ok());
    EXPECT_EQ(current(), 1);
    simulated::fail_call(simulated::Call::kCurrent, 1, kOutOfMemory);
    EXPECT_TRUE(
        contains(device_.make_current().message(), "cuda:1 cannot become the device of a thread"));
  }).join();
}

TEST_F(Simulated, AnEventThatNotedNothingIsDoneAndHoldsNothingBack) {
  auto event = Event::make(device_);
  auto stream = Stream::make(device_, false);
  ASSERT_TRUE(event.ok() && stream.ok());
  bool done = false;
  EXPECT_TRUE(event->query(done).ok());
  EXPECT_TRUE(done);
  EXPECT_TRUE(event->hold_back(stream->handle()).ok());
  EXPECT_EQ(simulated::calls(simulated::Call::kStreamWaitEvent), 0u);
}

TEST_F(Simulated, CopiesRunBehindWhatTheyAreHeldBackBy) {
  auto first = Stream::make(device_, false), second = Stream::make(device_, false);
  auto event = Event::make(device_);
  auto memory = DeviceMemory::make(device_, 4);
  auto from = PinnedMemory::make(device_, 4), to = PinnedMemory::make(device_, 4);
  ASSERT_TRUE(first.ok() && second.ok() && event.ok() && memory.ok() && from.ok() && to.ok());
  *reinterpret_cast<int32_t*>(from->data()) = 42;
  EXPECT_TRUE(first->copy_to_device(memory->data(), from->data(), 4).ok());
  EXPECT_TRUE(event->record(first->handle()).ok());
  EXPECT_TRUE(event->hold_back(second->handle()).ok());
  EXPECT_TRUE(second->copy_to_host(to->data(), memory->data(), 4).ok());
  EXPECT_TRUE(second->copy_to_host(nullptr, nullptr, 0).ok()) << "no bytes are no work";
  EXPECT_TRUE(second->wait().ok());
  EXPECT_EQ(*reinterpret_cast<int32_t*>(to->data()), 42);
}

}  // namespace
}  // namespace penstock::device_test
