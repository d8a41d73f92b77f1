// Gathered messages that peers have damaged. The core's reader must refuse such a message and name
// the rank, or its payloads must lie within the received bytes. The payloads of the other ranks
// must be unchanged.
#include "core/bucket/coded_indices.hpp"
#include "core/bucket/gathers.hpp"
#include "core/bucket/wire.hpp"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <fuzz/mutate.hpp>
#include <string>
#include <vector>

namespace penstock {
namespace {

using test::mutate_bytes;
using test::mutated;
using test::Random;

constexpr uint32_t kWorld = 3;
constexpr uint64_t kElements = 1000;  // of each item

const std::vector<std::vector<SectionNeed>>& item_sections() {
  static const std::vector<std::vector<SectionNeed>> sections{
      {{40, PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, false},
       {40, PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, false}},
      {{9, PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, false},
       {9, PENSTOCK_ROLE_VALUES, PENSTOCK_INT8, false},
       {1, PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT32, true}},
      {{0, PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, false},
       {0, PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, false}},
      {{77, PENSTOCK_ROLE_OTHER, PENSTOCK_UINT8, false}},
      {{5, PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT16, true}}};
  return sections;
}

// A bucket of these items in one gathered round.
struct Gathered {
  SetContext context;
  BucketRun bucket{context, {}, 0};
  Coding coding;
  Channel channel;
  GatherMessage message;
  Leg leg;
  std::deque<Gradient> gradients;
  std::deque<PieceRun> pieces;
  uint64_t capacity = 0;
  uint64_t header = 0;
  uint64_t uncoded = 0;
  uint64_t end = 0;  // of the received bytes, in their memory

  Gathered() {
    context.name = "set";
    context.world = kWorld;
    const std::vector<uint32_t> hosts(kWorld, 0);
    coding.links = &context.at(PENSTOCK_LEVEL_WORLD);
    coding.links->group = Group::joined(0, hosts).value();
    coding.links->transport.channel = &channel;
    channel.group = coding.links->group.view(0);
    message.bucket = &bucket;
    message.coding = &coding;
    message.link = &coding.links->transport;
    message.place = &context.host;
    bucket.label = "bucket 0";
    uint64_t of_sections = 0;
    for (const auto& sections : item_sections()) {
      gradients.emplace_back(
          DeclaredGradient("gradient" + std::to_string(gradients.size()), 0, {}));
      ItemRun& item = coding.items.emplace_back();
      item.gradient = &gradients.back();
      item.of = &pieces.emplace_back();
      item.of->place = &context.host;
      item.range = {0, kElements};
      RoundNeed& need = item.rounds.emplace_back();
      need.combine = PENSTOCK_COMBINE_GATHER;
      need.sections = sections;
      item.own.emplace_back().shape(need, 0);
      for (uint32_t r = 0; r < kWorld; ++r)
        received(item).emplace_back().shape(need, static_cast<int32_t>(r));
      for (const SectionNeed& section : sections) of_sections += room_of(item, section);
      message.items.push_back(message.items.size());
    }
    capacity = gathered_capacity(coding, message.items, 0);
    header = capacity - of_sections;
    uncoded = uncoded_capacity(coding, message.items, 0);
    message.send = Buffer(capacity + uncoded);
    message.uncoded_offset = capacity;
    message.send_offsets = {0};
    message.send_counts = {capacity};
    message.room_for.assign(kWorld, capacity);
  }
  static std::deque<PayloadStorage>& received(ItemRun& item) {
    if (item.received.empty()) item.received.emplace_back();
    return item.received[0];
  }

  // The bytes of a rank whose kinds, counts and contents are random but valid.
  std::string honest(Random& random) {
    EXPECT_TRUE(message.before_encode(0).ok());
    for (ItemRun& item : coding.items) {
      PayloadStorage& own = item.own[0];
      own.c()->kind = PENSTOCK_PAYLOAD_ABSENT + static_cast<uint32_t>(random.below(4));
      uint64_t pairs = random.below(own.section(0).capacity + 1);
      for (size_t s = 0; s < own.size(); ++s) {
        penstock_section& section = own.section(s);
        section.count = s < 2 ? pairs : section.capacity;
        auto* const bytes = static_cast<unsigned char*>(section.data);
        for (uint64_t b = 0; b < section.count * dtype_bytes(section.dtype); ++b)
          bytes[b] = static_cast<unsigned char>(random.bits());
        if (section.role == PENSTOCK_ROLE_INDICES) ascend(section, random);
      }
    }
    return closed();
  }

  static void ascend(penstock_section& section, Random& random) {
    auto* const indices = static_cast<uint32_t*>(section.data);
    uint64_t next = 0;
    for (uint64_t j = 0; j < section.count; ++j) {
      const uint64_t left = kElements - next - (section.count - j);
      next += random.below(std::min<uint64_t>(left, 60) + 1);
      indices[j] = static_cast<uint32_t>(next++);
    }
  }

  // Reads one part of each rank. The parts lie one after the other and end at the end of the
  // memory, so that a sanitizer finds a read beyond them.
  Status read(const std::array<std::string, kWorld>& parts) {
    uint64_t bytes = 0;
    for (const std::string& part : parts) bytes += part.size();
    end = (bytes + 63) / 64 * 64;
    message.receive = Buffer(end + kWorld * uncoded);
    message.receive_counts.clear();
    message.receive_offsets.clear();
    message.decoded_offsets.clear();
    uint64_t offset = end - bytes;
    for (const std::string& part : parts) {
      std::memcpy(message.receive.data() + offset, part.data(), part.size());
      message.receive_offsets.push_back(offset);
      message.receive_counts.push_back(part.size());
      message.decoded_offsets.push_back(end + message.decoded_offsets.size() * uncoded);
      offset += part.size();
    }
    for (ItemRun& item : coding.items) item.own[0].absent();  // no old payload
    bucket.is_void = false;
    return message.read(leg, 0);
  }

  void expect_within(uint32_t rank) {
    for (ItemRun& item : coding.items) {
      PayloadStorage& payload = item.received[0][rank];
      ASSERT_GE(payload.c()->kind, uint32_t{PENSTOCK_PAYLOAD_ABSENT});
      ASSERT_LE(payload.c()->kind, uint32_t{PENSTOCK_PAYLOAD_CODED});
      for (size_t s = 0; s < payload.size(); ++s) {
        const penstock_section& section = payload.section(s);
        ASSERT_LE(section.count, section.capacity);
        if (message.codes(item, 0, s))
          ASSERT_NO_FATAL_FAILURE(expect_decoded(section, rank));
        else
          ASSERT_NO_FATAL_FAILURE(expect_in_part(section, rank));
      }
      if (payload.c()->kind == PENSTOCK_PAYLOAD_SPARSE && payload.size() > 1) {
        ASSERT_EQ(payload.section(0).count, payload.section(1).count);
      }
    }
  }
  void expect_in_part(const penstock_section& section, uint32_t rank) {
    const std::byte* const begin = message.receive.data() + message.receive_offsets[rank];
    const std::byte* const behind = begin + message.receive_counts[rank];
    const auto* const data = static_cast<const std::byte*>(section.data);
    ASSERT_GE(data, begin + header);
    ASSERT_LE(data, behind);
    ASSERT_LE(section.count * dtype_bytes(section.dtype), static_cast<uint64_t>(behind - data));
  }
  // The reader has already checked coded indices.
  void expect_decoded(const penstock_section& section, uint32_t rank) {
    const auto* const indices = static_cast<const uint32_t*>(section.data);
    const auto* const data = static_cast<const std::byte*>(section.data);
    ASSERT_GE(data, message.receive.data() + end + rank * uncoded);
    ASSERT_LE(data + section.capacity * 4, message.receive.data() + end + (rank + 1) * uncoded);
    for (uint64_t j = 0; j < section.count; ++j) {
      ASSERT_LT(indices[j], kElements);
      if (j > 0) {
        ASSERT_GT(indices[j], indices[j - 1]);
      }
    }
  }

  // The rank's part, encoded again from the payloads that were read.
  std::string again(uint32_t rank) {
    EXPECT_TRUE(message.before_encode(0).ok());
    for (ItemRun& item : coding.items) {
      item.own[0].c()->kind = item.received[0][rank].c()->kind;
      for (size_t s = 0; s < item.own[0].size(); ++s) {
        penstock_section& to = item.own[0].section(s);
        const penstock_section& from = item.received[0][rank].section(s);
        to.count = from.count;
        if (to.count > 0) std::memcpy(to.data, from.data, to.count * dtype_bytes(to.dtype));
      }
    }
    return closed();
  }

  std::string closed() {
    message.receive_counts.resize(kWorld);
    EXPECT_TRUE(message.prepare(leg, 0).ok());
    return std::string(reinterpret_cast<const char*>(message.send.data()), message.message.count);
  }
};

std::string damaged(std::string part, const Gathered& gathered, Random& random) {
  switch (random.below(4)) {
    case 0:  // flags, kinds and counts
      mutate_bytes(reinterpret_cast<unsigned char*>(part.data()), gathered.header, 40, random);
      break;
    case 1: {  // one count or kind by a little
      const uint64_t at = random.below(gathered.header / 4) * 4;
      part[at] = static_cast<char>(part[at] + (random.below(2) == 0 ? 1 : -1));
      break;
    }
    case 2:
      part.resize(random.below(part.size() + 1));
      break;
    default:
      part = mutated(part, random);
  }
  part.resize(std::min<uint64_t>(part.size(), gathered.capacity));  // the capacity of a transport
  return part;
}

TEST(WireFuzz, WhatIsReadIsWhatWasSent) {
  Gathered gathered;
  Random random(21);
  for (int i = 0; i < 300; ++i) {
    const std::array<std::string, kWorld> parts{gathered.honest(random), gathered.honest(random),
                                                gathered.honest(random)};
    const Status status = gathered.read(parts);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_FALSE(gathered.bucket.is_void);
    for (uint32_t r = 0; r < kWorld; ++r) {
      ASSERT_NO_FATAL_FAILURE(gathered.expect_within(r));
      ASSERT_EQ(gathered.again(r), parts[r]);
    }
  }
}

TEST(WireFuzz, DamagedMessagesAreRefusedByRankOrReadWithinTheirBounds) {
  Gathered gathered;
  Random random(22);
  uint64_t refused = 0, accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::array<std::string, kWorld> parts{gathered.honest(random), gathered.honest(random),
                                          gathered.honest(random)};
    const auto liar = static_cast<uint32_t>(random.below(kWorld));
    parts[liar] = damaged(parts[liar], gathered, random);
    const Status status = gathered.read(parts);
    if (!status.ok()) {
      ++refused;
      // The damage may also change the first word, which contains the digest.
      ASSERT_TRUE(status.code() == Code::invalid_payload || status.code() == Code::mismatch);
      ASSERT_NE(status.message().find("rank " + std::to_string(liar)), std::string::npos)
          << status.message();
      continue;
    }
    ++accepted;
    for (uint32_t r = 0; r < kWorld; ++r) {
      ASSERT_NO_FATAL_FAILURE(gathered.expect_within(r));
      if (r != liar) {
        ASSERT_EQ(gathered.again(r), parts[r]);
      }
    }
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_GT(accepted, 1000u);
}

}  // namespace
}  // namespace penstock
