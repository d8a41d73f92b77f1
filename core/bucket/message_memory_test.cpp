// Where messages begin, and where each of their bytes has its twin on a device.

#include "core/bucket/message_memory.hpp"

#include "core/bucket/testing.hpp"

namespace penstock::message_memory_test {
namespace {

using testing::device_on_paper;
using testing::gathered;
using testing::PaperBucket;
using testing::up_to;

constexpr uint64_t kTooMany = (uint64_t{1} << 30) + 1;  // for this device

TEST(MessageMemory, OfNothingIsEmpty) {
  const MessageMemory none;
  EXPECT_EQ(none.bytes(), 0u);
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_FALSE(none.is_on_device_alone());
}

TEST(MessageMemory, OfTheHostIsTheBufferItWasMadeFrom) {
  Buffer buffer(100);
  std::byte* const begin = buffer.data();
  const MessageMemory memory(std::move(buffer));
  EXPECT_EQ(memory.bytes(), 100u);
  EXPECT_EQ(memory.data(), begin);
  EXPECT_EQ(memory.as<float>(), reinterpret_cast<float*>(begin));
  EXPECT_FALSE(memory.is_on_device_alone());
}

TEST(MessageMemory, WithATwinIsZeroedAndHasEverythingThereAtTheSameOffset) {
  for (const uint64_t bytes : {0, 1, 1001}) {
    const auto made = MessageMemory::make_with_twin(device_on_paper(), bytes);
    ASSERT_OK(made.status());
    const MessageMemory& memory = made.value();
    EXPECT_EQ(memory.bytes(), bytes);
    EXPECT_FALSE(memory.is_on_device_alone());
    for (uint64_t i = 0; i < bytes; ++i) ASSERT_EQ(memory.data()[i], std::byte{0}) << i;
    std::byte* const there = memory.on_device(memory.data());
    ASSERT_NE(there, nullptr);
    EXPECT_NE(there, memory.data());
    for (const uint64_t offset : {uint64_t{0}, bytes / 2, bytes}) {
      EXPECT_EQ(memory.on_device(memory.data() + offset), there + offset);
      EXPECT_EQ(memory.on_host(there + offset), memory.data() + offset);
    }
  }
}

TEST(MessageMemory, OfADeviceAloneBeginsThere) {
  const auto made = MessageMemory::make_on_device(device_on_paper(), 64);
  ASSERT_OK(made.status());
  const MessageMemory& memory = made.value();
  EXPECT_TRUE(memory.is_on_device_alone());
  EXPECT_EQ(memory.bytes(), 64u);
  EXPECT_EQ(memory.on_device(memory.data() + 24), memory.data() + 24);
}

TEST(MessageMemory, StaysWhereItIsWhenItIsMoved) {
  auto made = MessageMemory::make_with_twin(device_on_paper(), 64);
  ASSERT_OK(made.status());
  std::byte* const here = made->data();
  std::byte* const there = made->on_device(here);
  const MessageMemory moved = std::move(made.value());
  EXPECT_EQ(moved.data(), here);
  EXPECT_EQ(moved.on_device(here), there);
}

TEST(MessageMemory, ThatTheDeviceDoesNotHaveIsAnError) {
  EXPECT_EQ(MessageMemory::make_with_twin(device_on_paper(), kTooMany).status().code(),
            Code::out_of_memory);
  EXPECT_EQ(MessageMemory::make_on_device(device_on_paper(), kTooMany).status().code(),
            Code::out_of_memory);
}

TEST(MessageMemory, OfAMessageThatTheHostAloneWorksOnHasNoTwin) {
  PaperBucket paper(0, 2);
  paper.add("w", 5, {gathered({up_to(5)})});
  ASSERT_OK(paper.lay_out());
  auto memory = memory_of(paper.bucket, paper.message(), 40);
  ASSERT_OK(memory.status());
  EXPECT_EQ(memory->bytes(), 40u);
  EXPECT_FALSE(memory->is_on_device_alone());
  EXPECT_EQ(memory->on_device(memory->data()), nullptr);
}

}  // namespace
}  // namespace penstock::message_memory_test
