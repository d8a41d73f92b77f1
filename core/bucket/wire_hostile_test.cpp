// Parts of gathered messages that a correct rank never sends. Each part is refused, and the message
// names rank and gradient, before any value is used.

#include "core/bucket/gathered_testing.hpp"

namespace penstock::wire_hostile_test {
namespace {

using testing::Gathered;
using testing::gathered;
using testing::pairs;
using testing::Part;
using testing::up_to;

// A gradient with pairs and a gradient with codes, on rank 0 of two.
struct Two : Gathered {
  Two() : Gathered(0, 2) {
    add("sparse", 10, {pairs(4)});
    add("coded", 9, {gathered({up_to(9, PENSTOCK_UINT8)})});
    open();
  }
};

// Flags, kind and counts of the pairs, kind and count of the codes; then two pairs and three codes.
std::string part(const std::vector<uint32_t>& header) {
  return Part().words(header).words({1, 5}).floats({7, 8}).text("abc").zeros(5).bytes();
}
const std::vector<uint32_t> kHonest{0, 3, 2, 2, 4, 3};

std::vector<uint32_t> with(size_t word, uint32_t value) {
  std::vector<uint32_t> header = kHonest;
  header[word] = value;
  return header;
}

void expect_refused(const std::string& bytes, const std::string& sentence) {
  Two two;
  const Status status = two.read({part(kHonest), bytes});
  EXPECT_EQ(status.code(), Code::invalid_payload);
  EXPECT_EQ(status.message(), "set 'set', bucket 3: the message of rank 1" + sentence);
}

TEST(HostileParts, TheHonestOneIsRead) {
  Two two;
  ASSERT_OK(two.read({part(kHonest), part(kHonest)}));
}

TEST(HostileParts, ThatAreShorterThanTheirHeaderAreRefused) {
  expect_refused("", " has 0 bytes, its header alone takes 24");
  expect_refused(part(kHonest).substr(0, 23), " has 23 bytes, its header alone takes 24");
}

TEST(HostileParts, OfAnUnknownKindAreRefused) {
  for (const uint32_t kind : {0u, 5u, 0x80000003u, 0xffffffffu}) {
    const std::string sentence = fmt::format(" is of the unknown kind {}", kind);
    expect_refused(part(with(1, kind)), " for gradient 'sparse'" + sentence);
    expect_refused(part(with(4, kind)), " for gradient 'coded'" + sentence);
  }
}

TEST(HostileParts, ThatClaimMoreThanWasPlannedAreRefused) {
  for (const uint32_t count : {5u, 0x80000000u, 0xffffffffu}) {
    const auto sentence = [&](int section, int most) {
      return fmt::format(" claims {} elements in section {}, at most {} are legal", count, section,
                         most);
    };
    expect_refused(part(with(2, count)), " for gradient 'sparse'" + sentence(0, 4));
    expect_refused(part(with(3, count)), " for gradient 'sparse'" + sentence(1, 4));
  }
  expect_refused(part(with(5, 10)),
                 " for gradient 'coded' claims 10 elements in section 0, at most 9 are legal");
}

TEST(HostileParts, WithOtherNumbersOfIndicesThanOfValuesAreRefused) {
  for (const auto& header : {with(2, 1), with(3, 1), with(2, 0)})
    expect_refused(part(header),
                   " for gradient 'sparse' has different numbers of indices and values");
}

TEST(HostileParts, OnlyPairsNeedEqualNumbers) {
  Two two;
  std::vector<uint32_t> coded = with(2, 1);
  coded[1] = PENSTOCK_PAYLOAD_CODED;
  EXPECT_TRUE(two.read({part(kHonest), part(coded)}).ok());
}

TEST(HostileParts, ThatEndTooEarlyAreRefusedWhereTheyEnd) {
  const std::string whole = part(kHonest);
  const auto expect_end = [&](size_t bytes, const std::string& gradient, int section) {
    expect_refused(
        whole.substr(0, bytes),
        fmt::format(" for gradient '{}' ends in the middle of section {}", gradient, section));
  };
  expect_end(24, "sparse", 0);
  expect_end(31, "sparse", 0);
  expect_end(32, "sparse", 1);
  expect_end(39, "sparse", 1);
  expect_end(40, "coded", 0);
  expect_end(43, "coded", 0);
  expect_end(47, "coded", 0);  // the zeros behind the code are a part of it
}

TEST(HostileParts, WhatFollowsTheLastSectionIsNotLookedAt) {
  Two two;
  EXPECT_TRUE(two.read({part(kHonest), part(kHonest) + std::string(16, '\xff')}).ok());
}

// 4 * (2^32 - 1) needs more than 32 bits, and 4 * 2^30 is 0 in 32 bits.
TEST(HostileParts, CountsWhoseBytesTake33BitsAreNotTakenForFew) {
  for (const uint32_t count : {0xffffffffu, 0x40000000u}) {
    Gathered large(0, 2);
    large.add("large", uint64_t{1} << 33, {pairs(0xffffffff)});
    large.open();
    const std::string honest = Part().words({0, 3, 0, 0}).bytes();
    const std::string liar = Part().words({0, 3, count, count, 0, 0}).bytes();
    EXPECT_EQ(large.read({honest, liar}).message(),
              "set 'set', bucket 3: the message of rank 1 for gradient 'large' ends in the middle "
              "of section 0");
  }
}

TEST(HostileParts, OfThisRankAreRefusedLikewise) {
  Two two;
  const Status status = two.read({part(with(1, 9)), part(kHonest)});
  EXPECT_EQ(status.message(),
            "set 'set', bucket 3: the message of rank 0 for gradient 'sparse' is of the unknown "
            "kind 9");
}

TEST(HostileParts, OfASetOfSomeRanksAreToldByTheirRankInTheWorld) {
  Gathered some(3, 6);
  const std::vector<uint32_t> members{1, 3, 5};
  some.join(PENSTOCK_LEVEL_WORLD, some.coding().links->group.subset(members).value());
  some.add("w", 2, {gathered({up_to(2)})});
  some.open();
  const std::string honest = Part().words({0, 1, 0}).zeros(4).bytes();
  EXPECT_EQ(some.read({honest, honest, ""}).message(),
            "set 'set', bucket 3: the message of rank 5 has 0 bytes, its header alone takes 16");
}

// ---- Errors that a device will find ----

// Device-resident pairs, on rank 1 of two. Their values go through host memory.
struct OnDevice : Gathered {
  OnDevice() : Gathered(1, 2), item(add("w", 10, {pairs(4)})) {
    item.of->place = &testing::place_on_paper();
    open();
    place({48});
  }
  std::string of(const std::vector<uint32_t>& indices) {
    Part part;
    const auto count = static_cast<uint32_t>(indices.size());
    part.words({0, 3, count, count}).words(indices).zeros(count % 2 * 4);
    return part.floats(std::vector<float>(count)).zeros(count % 2 * 4).bytes();
  }
  ItemRun& item;
};

TEST(PartsForADevice, PointToItsMemoryAndMayBeLookedAtOnTheHost) {
  OnDevice receiver;
  ASSERT_OK(receiver.read({receiver.of({0, 9}), receiver.of({4})}));
  const WorkMemory& memory = receiver.message->receive;
  const int64_t begin = 4096 - 32;
  const penstock_section& values = receiver.came(receiver.item, 0, 1);
  EXPECT_EQ(values.on_host, memory.data() + begin + 24);
  EXPECT_EQ(values.data, memory.twin_of(memory.data()) + begin + 24);
  // The payload of this rank lies on the device already.
  EXPECT_EQ(receiver.came(receiver.item, 1, 0).data, receiver.item.own[0].section(0).data);
  EXPECT_EQ(receiver.came(receiver.item, 1, 0).on_host, memory.data() + 8192 - 32 + 16);
}

TEST(PartsForADevice, HaveTheirIndicesCheckedByTheHost) {
  const auto refused = [](const std::vector<uint32_t>& indices) {
    OnDevice receiver;
    const Status status = receiver.read({receiver.of(indices), receiver.of({0})});
    return std::string(status.message());
  };
  const std::string begin = "set 'set', bucket 3: the message of rank 0 for gradient 'w' has ";
  const std::string end = ", expected ascending ones below 10";
  EXPECT_EQ(refused({0, 1, 2, 9}), "");
  EXPECT_EQ(refused({}), "");
  EXPECT_EQ(refused({10}), begin + "index 10 at entry 0" + end);
  EXPECT_EQ(refused({3, 0xffffffff}), begin + "index 4294967295 at entry 1" + end);
  EXPECT_EQ(refused({5, 5}), begin + "index 5 at entry 1" + end);
  EXPECT_EQ(refused({5, 7, 6}), begin + "index 6 at entry 2" + end);
}

TEST(PartsForADevice, AreClosedOnTheHostAndStayWhereTheDeviceHasLeftThem) {
  OnDevice sender;
  const WorkMemory& memory = sender.message->send;
  std::byte* const there = memory.twin_of(memory.data());
  penstock_section& indices = sender.item.own[0].section(0);
  penstock_section& values = sender.item.own[0].section(1);
  ASSERT_EQ(indices.data, there + 16);
  ASSERT_EQ(values.data, there + 32);
  // Stands for the copy from the device.
  *reinterpret_cast<uint32_t*>(memory.data() + 16) = 6;
  *reinterpret_cast<float*>(memory.data() + 32) = 2.5f;
  sender.item.own[0].c()->kind = PENSTOCK_PAYLOAD_SPARSE;
  indices.count = values.count = 1;
  ASSERT_OK(sender.close());
  EXPECT_EQ(sender.sent(),
            Part().words({0, 3, 1, 1}).words({6}).zeros(4).floats({2.5f}).zeros(4).bytes());
  EXPECT_EQ(values.data, there + 32);
  EXPECT_EQ(values.on_host, memory.data() + 24);
}

}  // namespace
}  // namespace penstock::wire_hostile_test
