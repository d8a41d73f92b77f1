// The begin of the memory of each place, and the twin of each byte.

#include "core/bucket/work_memory.hpp"

#include "core/bucket/testing.hpp"

namespace penstock::work_memory_test {
namespace {

using testing::place_on_paper;

constexpr uint64_t kTooMany = (uint64_t{1} << 30) + 1;  // more than this device has

TEST(WorkMemory, OfNothingIsEmpty) {
  const WorkMemory none;
  EXPECT_EQ(none.bytes(), 0u);
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_FALSE(none.is_its_twin());
}

TEST(WorkMemory, OfTheHostIsTheBufferItWasMadeFrom) {
  Buffer buffer(100);
  std::byte* const begin = buffer.data();
  const WorkMemory memory(std::move(buffer));
  EXPECT_EQ(memory.bytes(), 100u);
  EXPECT_EQ(memory.data(), begin);
  EXPECT_EQ(memory.as<float>(), reinterpret_cast<float*>(begin));
  EXPECT_FALSE(memory.is_its_twin());
}

TEST(WorkMemory, OfMessagesOfTheHostIsZeroedAndHasNoTwin) {
  const HostPlace host;
  for (const bool is_announced : {false, true}) {
    auto made = host.make_for(Link{.is_announced = is_announced}, 40);
    ASSERT_OK(made.status());
    EXPECT_EQ(made->bytes(), 40u);
    for (uint64_t i = 0; i < 40; ++i) ASSERT_EQ(made->data()[i], std::byte{0}) << i;
    EXPECT_EQ(made->twin_of(made->data()), nullptr);
  }
}

TEST(WorkMemory, OfMessagesWithATwinIsZeroedAndHasEverythingThereAtTheSameOffset) {
  for (const uint64_t bytes : {0, 1, 1001}) {
    const auto made = place_on_paper().make_for(Link{}, bytes);
    ASSERT_OK(made.status());
    const WorkMemory& memory = made.value();
    EXPECT_EQ(memory.bytes(), bytes);
    EXPECT_FALSE(memory.is_its_twin());
    for (uint64_t i = 0; i < bytes; ++i) ASSERT_EQ(memory.data()[i], std::byte{0}) << i;
    std::byte* const there = memory.twin_of(memory.data());
    ASSERT_NE(there, nullptr);
    EXPECT_NE(there, memory.data());
    for (const uint64_t offset : {uint64_t{0}, bytes / 2, bytes}) {
      EXPECT_EQ(memory.twin_of(memory.data() + offset), there + offset);
      EXPECT_EQ(memory.of_twin(there + offset), memory.data() + offset);
    }
  }
}

TEST(WorkMemory, OfADeviceAloneBeginsThere) {
  const auto of_announced = place_on_paper().make_for(Link{.is_announced = true}, 64);
  const auto of_values = place_on_paper().make(64);
  for (const auto* made : {&of_announced, &of_values}) {
    ASSERT_OK(made->status());
    const WorkMemory& memory = made->value();
    EXPECT_TRUE(memory.is_its_twin());
    EXPECT_EQ(memory.bytes(), 64u);
    EXPECT_EQ(memory.twin_of(memory.data() + 24), memory.data() + 24);
  }
}

TEST(WorkMemory, StaysWhereItIsWhenItIsMoved) {
  auto made = place_on_paper().make_for(Link{}, 64);
  ASSERT_OK(made.status());
  std::byte* const here = made->data();
  std::byte* const there = made->twin_of(here);
  const WorkMemory moved = std::move(made.value());
  EXPECT_EQ(moved.data(), here);
  EXPECT_EQ(moved.twin_of(here), there);
}

TEST(WorkMemory, ThatTheDeviceDoesNotHaveIsAnError) {
  for (const bool is_announced : {false, true})
    EXPECT_EQ(
        place_on_paper().make_for(Link{.is_announced = is_announced}, kTooMany).status().code(),
        Code::out_of_memory);
}

TEST(WorkMemory, OfAMessageThatTheHostAloneWorksOnHasNoTwin) {
  testing::PaperBucket paper(0, 2);
  paper.add("w", 5, {testing::gathered({testing::up_to(5)})});
  ASSERT_OK(paper.lay_out());
  auto memory = memory_of(paper.message(), 40);
  ASSERT_OK(memory.status());
  EXPECT_EQ(memory->twin_of(memory->data()), nullptr);
}

}  // namespace
}  // namespace penstock::work_memory_test
