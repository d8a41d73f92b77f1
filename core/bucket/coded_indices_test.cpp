// Indices on the wire, byte by byte, and the refusal of invalid indices. The indices that plugins
// see stay as the plugins wrote them.

#include "core/bucket/coded_indices.hpp"

#include "core/bucket/exchange.hpp"
#include "core/bucket/gathered_testing.hpp"
#include "core/bucket/placement.hpp"

#include <numeric>
#include <thread>

namespace penstock::coded_indices_test {
namespace {

using testing::Gathered;
using testing::gathered;
using testing::pairs;
using testing::Part;
using testing::up_to;

using Indices = std::vector<uint32_t>;

// Bytes of a coded section, in the form of docs/payloads.md.
std::string bytes_of(const std::vector<int>& bytes) {
  std::string text;
  for (const int byte : bytes) text += static_cast<char>(byte);
  return text;
}

// The example of docs/payloads.md: 3, 17, 20 and 999, of 1000.
const Indices kFour{3, 17, 20, 999};
const std::string kRice = bytes_of({2, 8, 0, 4, 5, 3, 13, 2, 210, 71});
const std::string kBlocks = bytes_of({1, 0, 0, 4, 8, 3, 0, 17, 0, 20, 0, 231, 3});
const std::string kRaw =
    bytes_of({0, 0, 0, 4, 16, 3, 0, 0, 0, 17, 0, 0, 0, 20, 0, 0, 0, 231, 3, 0, 0});

std::string padded(std::string bytes) {
  bytes.resize((bytes.size() + 7) / 8 * 8);
  return bytes;
}

// Flags, kind and counts of four pairs, the indices in coded form, and the values.
std::string part_of(const std::string& coded, uint32_t count = 4) {
  const std::vector<float> values(count, 1.5f);
  Part part;
  part.words({0, 3, count, count}).text(padded(coded)).floats(values).zeros(count % 2 * 4);
  return part.bytes();
}

struct One : Gathered {
  explicit One(uint64_t numel = 1000, uint64_t most = 40)
      : Gathered(0, 2), item(add("w", numel, {pairs(most)})) {
    open();
  }
  // Parts that arrive, the last from rank 1.
  Status come(const std::string& part) { return read({part_of(kRice), part}); }
  Indices came_from(uint32_t rank) {
    const penstock_section& section = came(item, rank, 0);
    const auto* indices = static_cast<const uint32_t*>(section.data);
    return {indices, indices + section.count};
  }
  ItemRun& item;
};

// ---- Which indices are coded ----

TEST(CodedIndices, AreThoseOf32BitsThatMayBeMany) {
  const SectionNeed coded{32, PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, false};
  EXPECT_TRUE(coded.is_coded(1000));
  EXPECT_TRUE(coded.is_coded(uint64_t{1} << 32));
  EXPECT_FALSE(coded.is_coded((uint64_t{1} << 32) + 1));
  const SectionNeed few{31, PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, false};
  const SectionNeed values{32, PENSTOCK_ROLE_VALUES, PENSTOCK_UINT32, false};
  const SectionNeed wide{32, PENSTOCK_ROLE_INDICES, PENSTOCK_UINT64, false};
  for (const SectionNeed& other : {few, values, wide}) EXPECT_FALSE(other.is_coded(1000));
}

TEST(CodedIndices, AreNoneOfAMessageThatIsAnnounced) {
  One one;
  EXPECT_TRUE(one.message->codes(one.item, 0, 0));
  EXPECT_FALSE(one.message->codes(one.item, 0, 1));
  one.coding().links->transport.is_announced = true;
  EXPECT_FALSE(one.message->codes(one.item, 0, 0));
}

// ---- Sending ----

TEST(CodedIndices, TravelInTheShortestCodingAndStayAsTheyWereWritten) {
  One sender;
  sender.place({gathered_capacity(sender.coding(), {0}, 0)});
  sender.encode<uint32_t>(sender.item, PENSTOCK_PAYLOAD_SPARSE, 0, kFour);
  sender.encode<float>(sender.item, PENSTOCK_PAYLOAD_SPARSE, 1, {1.5f, 1.5f, 1.5f, 1.5f});
  ASSERT_OK(sender.close());
  EXPECT_EQ(sender.sent(), part_of(kRice));
  EXPECT_EQ(sender.message->send_counts, (std::vector<uint64_t>{16 + 16 + 16}));
  // The core may have to give back the sent payload.
  const penstock_section& own = sender.item.own[0].section(0);
  EXPECT_EQ(sender.offset(own.data, sender.message->send), 16 + 184 + 160);
  EXPECT_EQ(std::memcmp(own.data, kFour.data(), 16), 0);
}

TEST(CodedIndices, OfWhichThereAreNoneHaveNoBytes) {
  One sender;
  sender.place({gathered_capacity(sender.coding(), {0}, 0)});
  sender.item.own[0].c()->kind = PENSTOCK_PAYLOAD_SPARSE;
  ASSERT_OK(sender.close());
  EXPECT_EQ(sender.sent(), part_of("", 0));
  ASSERT_OK(sender.come(part_of("", 0)));
  EXPECT_EQ(sender.came_from(1), Indices());
}

TEST(CodedIndices, OfThisRankAreNotDecodedAgain) {
  One one;
  one.place({gathered_capacity(one.coding(), {0}, 0)});
  one.encode<uint32_t>(one.item, PENSTOCK_PAYLOAD_SPARSE, 0, kFour);
  one.encode<float>(one.item, PENSTOCK_PAYLOAD_SPARSE, 1, {1.5f, 1.5f, 1.5f, 1.5f});
  ASSERT_OK(one.close());
  ASSERT_OK(one.come(part_of(kRice)));
  EXPECT_EQ(one.came(one.item, 0, 0).data, one.item.own[0].section(0).data);
  EXPECT_EQ(one.came_from(0), kFour);
  EXPECT_EQ(one.came_from(1), kFour);
  EXPECT_EQ(*static_cast<const float*>(one.came(one.item, 0, 1).data), 1.5f);  // behind the indices
}

// All sent indices arrive, and no part is longer than its capacity.
TEST(CodedIndices, ArriveOnAllRanksWhateverTheirNumberAndPlaces) {
  for (const uint64_t numel : {1000u, 70'000u, 4'000'000'000u})
    for (const uint64_t count : {1u, 31u, 511u, 513u, 900u})
      for (const bool at_the_end : {false, true}) {
        One one(numel, 900);
        Indices indices(count);
        for (uint64_t j = 0; j < count; ++j)
          indices[j] = uint32_t(at_the_end ? numel - count + j : j * (numel / count));
        one.place({gathered_capacity(one.coding(), {0}, 0)});
        one.encode(one.item, PENSTOCK_PAYLOAD_SPARSE, 0, indices);
        one.encode(one.item, PENSTOCK_PAYLOAD_SPARSE, 1, std::vector<float>(count, 1));
        ASSERT_OK(one.close());
        const std::string sent = one.sent();
        ASSERT_LE(sent.size(), gathered_capacity(one.coding(), {0}, 0));
        if (sent.size() > 4096) continue;  // larger than the memory of these tests
        ASSERT_OK(one.read({sent, sent}));
        for (const uint32_t rank : {0u, 1u}) ASSERT_EQ(one.came_from(rank), indices);
      }
}

TEST(CodedIndices, OfAnAllToAllLieBehindEachOther) {
  Gathered owned(0, 2);
  ItemRun& first = owned.add("first", 1000, {pairs(40)});
  ItemRun& second = owned.add("second", 1000, {pairs(32)});
  owned.open(PENSTOCK_ALL_TO_ALL);
  owned.message->by_owner = {{1}, {0}};
  owned.place({16 + 152 + 128, 16 + 184 + 160});
  EXPECT_EQ(owned.offset(second.own[0].section(0).data, owned.message->send), 656);
  EXPECT_EQ(owned.offset(first.own[0].section(0).data, owned.message->send), 656 + 128);
  EXPECT_EQ(owned.offset(second.own[0].section(1).data, owned.message->send), 16 + 152);
  EXPECT_EQ(owned.offset(first.own[0].section(1).data, owned.message->send), 296 + 16 + 184);
}

// The values come after the capacity for all indices, so that one copy fetches all values from a
// device.
TEST(CodedIndices, LeaveTheValuesOfAllItemsTogether) {
  Gathered two(0, 1);
  ItemRun& first = two.add("first", 1000, {pairs(40)});
  ItemRun& second = two.add("second", 1000, {pairs(40)});
  two.open();
  const uint64_t most = gathered_capacity(two.coding(), {0, 1}, 0);
  ASSERT_EQ(most, 32 + 2 * (184u + 160u));
  two.place({most});
  EXPECT_EQ(two.offset(first.own[0].section(1).data, two.message->send), 32 + 2 * 184);
  EXPECT_EQ(two.offset(second.own[0].section(1).data, two.message->send), 32 + 2 * 184 + 160);
  // A full capacity of indices that no coding makes shorter: the two items must not overwrite each
  // other.
  Indices far(40), near(40);
  for (uint32_t j = 0; j < 40; ++j) far[j] = j * j / 2 + j, near[j] = 960 + j;
  const std::vector<float> ones(40, 1), twos(40, 2);
  two.encode(first, PENSTOCK_PAYLOAD_SPARSE, 0, far);
  two.encode(first, PENSTOCK_PAYLOAD_SPARSE, 1, ones);
  two.encode(second, PENSTOCK_PAYLOAD_SPARSE, 0, near);
  two.encode(second, PENSTOCK_PAYLOAD_SPARSE, 1, twos);
  ASSERT_OK(two.close());
  ASSERT_OK(two.read({two.sent()}));
  for (uint32_t j = 0; j < 40; ++j) {
    EXPECT_EQ(static_cast<const uint32_t*>(two.came(first, 0, 0).data)[j], far[j]);
    EXPECT_EQ(static_cast<const uint32_t*>(two.came(second, 0, 0).data)[j], near[j]);
    EXPECT_EQ(static_cast<const float*>(two.came(first, 0, 1).data)[j], 1);
    EXPECT_EQ(static_cast<const float*>(two.came(second, 0, 1).data)[j], 2);
  }
}

// ---- Reading ----

TEST(CodedIndices, AreReadInEveryCoding) {
  for (const std::string& coded : {kRice, kBlocks, kRaw}) {
    One one;
    ASSERT_OK(one.come(part_of(coded)));
    EXPECT_EQ(one.came_from(1), kFour);
    EXPECT_EQ(one.came_from(0), kFour);
    EXPECT_EQ(*static_cast<const float*>(one.came(one.item, 1, 1).data), 1.5f);
  }
}

TEST(CodedIndices, ThatAreNotWhatTheyClaimAreRefusedByRankAndGradient) {
  const auto expect_refused = [](const std::string& part, const std::string& sentence) {
    One one;
    const Status status = one.come(part);
    EXPECT_EQ(status.code(), Code::invalid_payload);
    EXPECT_EQ(status.message(),
              "set 'set', bucket 3: the message of rank 1 for gradient 'w' " + sentence);
  };
  std::string other = kRice, far = kRaw, equal = kRaw;
  other[0] = 3;
  far[18] = 4;
  equal[9] = 3;
  expect_refused(part_of(other),
                 "has a section 0 that is of the unknown coding 3, expected one below 3");
  expect_refused(part_of(kRice, 5),
                 "has a section 0 that has 4 positions, the header of the message says 5");
  expect_refused(part_of(far),
                 "has a section 0 that has the position 1255, expected ascending "
                 "ones below 1000");
  expect_refused(part_of(equal),
                 "has a section 0 that has the position 3, expected ascending ones below 1000");
  expect_refused(part_of(kRice).substr(0, 18),
                 "has a section 0 that has 2 bytes, its header alone takes more");
  expect_refused(part_of(kRice).substr(0, 24),
                 "has a section 0 that claims 5 bytes, of which 3 are there");
  // The zeros behind the code are a part of it.
  expect_refused(part_of(kRice).substr(0, 30), "ends in the middle of section 0");
}

// ---- Items of a device, through host memory ----

TEST(CodedIndices, OfADeviceAreCodedOnTheHostAndDecodedIntoMemoryWithATwin) {
  One one;
  one.item.of->place = &testing::place_on_paper();
  take_items(*one.message, one.message->items);
  one.place({gathered_capacity(one.coding(), {0}, 0)});
  const WorkMemory& sent = one.message->send;
  const int64_t at = one.offset(sent.of_twin(one.item.own[0].section(0).data), sent);
  EXPECT_EQ(at, 16 + 184 + 160);
  std::memcpy(sent.data() + at, kFour.data(), 16);  // stands for a copy from the device
  one.item.own[0].c()->kind = PENSTOCK_PAYLOAD_SPARSE;
  one.item.own[0].section(0).count = one.item.own[0].section(1).count = 4;
  ASSERT_OK(one.close());
  EXPECT_EQ(one.sent().substr(16, 16), padded(kRice));
  EXPECT_EQ(one.item.own[0].section(0).on_host, sent.data() + at);

  ASSERT_OK(one.come(part_of(kRice)));
  const WorkMemory& received = one.message->receive;
  const penstock_section& indices = one.came(one.item, 1, 0);
  EXPECT_EQ(std::memcmp(indices.on_host, kFour.data(), 16), 0);
  EXPECT_EQ(received.of_twin(indices.data), indices.on_host);
}

// ---- The time of coding ----

TEST(CodedIndices, TakeTimeThatCountsAsEncodeWhereTheLegEncodes) {
  for (const bool encodes : {true, false}) {
    constexpr uint64_t kElements = 4'000'000, kMany = 400'000;
    One one(kElements, kMany);
    one.place({gathered_capacity(one.coding(), {0}, 0)});
    Indices indices(kMany);
    for (uint32_t j = 0; j < kMany; ++j) indices[j] = 10 * j + j % 7;
    one.encode(one.item, PENSTOCK_PAYLOAD_SPARSE, 0, indices);
    one.encode(one.item, PENSTOCK_PAYLOAD_SPARSE, 1, std::vector<float>(kMany, 1));
    one.leg.kind.encodes = encodes;
    ASSERT_OK(prepare(one.bucket, one.leg, 0, {one.message.get()}));
    EXPECT_EQ(one.bucket.encode_us > 0, encodes);
    EXPECT_EQ(one.bucket.counted_us, one.bucket.encode_us);
  }
}

TEST(CodedIndices, TakeTimeThatCountsAsDecodeWhereTheLegDecodes) {
  Leg leg;
  leg.kind.decodes = true;
  EXPECT_EQ(Read(leg, 0).part(), Stage::Part::decode);
  leg.kind.decodes = false;
  EXPECT_EQ(Read(leg, 0).part(), Stage::Part::none);
}

// An exchange that first works for 20 ms.
struct WorksFirst final : Stage {
  WorksFirst() : Stage("exchange", Part::exchange) {}
  Status begin(BucketRun& bucket) override {
    const uint64_t begun_us = now_us();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    bucket.add_apart(Part::encode, now_us() - begun_us);
    return {};
  }
};

TEST(CodedIndices, TakeTimeThatIsNotCountedTwice) {
  testing::PaperBucket paper(0, 1);
  Timeline timeline;
  paper.context.timeline = &timeline;
  BucketRun& bucket = paper.bucket;
  bucket.placement = std::make_unique<Placement>();
  for (int i = 0; i < 2; ++i) bucket.program.push_back(std::make_unique<WorksFirst>());
  const uint64_t begun_us = now_us();
  bucket.job.start();
  ASSERT_TRUE(bucket.job.resume(bucket));
  EXPECT_LE(bucket.encode_us + bucket.exchange_us, now_us() - begun_us);
  EXPECT_GE(bucket.encode_us, 40'000u);
}

}  // namespace
}  // namespace penstock::coded_indices_test
