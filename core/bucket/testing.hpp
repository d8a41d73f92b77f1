// For the tests of this room: a bucket as one rank makes it at plan time. The test states the
// needs, so no plugin is called, no channel is opened and no thread is started.
#pragma once

#include "core/bucket/layout.hpp"
#include "core/bucket/messages.hpp"
#include "core/bucket/on_device/device_place.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace penstock::testing {

#define ASSERT_OK(expression)                                         \
  do {                                                                \
    const ::penstock::Status assert_ok_status = (expression);         \
    ASSERT_TRUE(assert_ok_status.ok()) << assert_ok_status.message(); \
  } while (false)

// ---- The needs of compressors ----

inline SectionNeed exactly(uint64_t count, uint32_t dtype = PENSTOCK_FLOAT32) {
  return {count, PENSTOCK_ROLE_VALUES, dtype, true};
}
inline SectionNeed up_to(uint64_t capacity, uint32_t dtype = PENSTOCK_FLOAT32,
                         uint32_t role = PENSTOCK_ROLE_VALUES) {
  return {capacity, role, dtype, false};
}
inline RoundNeed summed(std::vector<SectionNeed> sections,
                        uint32_t reduction = PENSTOCK_REDUCE_SUM) {
  return {PENSTOCK_COMBINE_SUM, PENSTOCK_RESULT_MEAN, reduction, 0, std::move(sections)};
}
inline RoundNeed gathered(std::vector<SectionNeed> sections) {
  return {PENSTOCK_COMBINE_GATHER, PENSTOCK_RESULT_MEAN, PENSTOCK_REDUCE_SUM, 0,
          std::move(sections)};
}
// Indices and values, as top-k sends them.
inline RoundNeed pairs(uint64_t most) {
  return gathered({up_to(most, PENSTOCK_UINT32, PENSTOCK_ROLE_INDICES), up_to(most)});
}

// ---- Plugins with a name and traits; no other function is called ----

inline std::unique_ptr<CompressorInstance> compressor_named(const std::string& name,
                                                            uint32_t flags = 0) {
  static const penstock_compressor table = [] {
    penstock_compressor made{};
    made.struct_size = sizeof made;
    made.describe = [](void* self, penstock_compressor_traits* traits) -> penstock_status* {
      traits->dtypes = PENSTOCK_DTYPE_BIT(PENSTOCK_FLOAT32);
      traits->device_types = uint64_t{1} << PENSTOCK_DEVICE_CPU;
      traits->flags = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(self));
      return nullptr;
    };
    return made;
  }();
  return std::move(
      CompressorInstance::borrow(name, &table, reinterpret_cast<void*>(uintptr_t{flags})).value());
}

inline std::unique_ptr<MemoryInstance> memory_named(const std::string& name) {
  static const penstock_memory table = [] {
    penstock_memory made{};
    made.struct_size = sizeof made;
    return made;
  }();
  return std::move(MemoryInstance::borrow(name, &table, nullptr).value());
}

// A device whose memory is host memory. One allocation has at most one GiB.
inline Device device_on_paper() {
  static const penstock_device_table table = [] {
    penstock_device_table made{};
    made.struct_size = sizeof made;
    made.error_text = [](int32_t) { return "it has no more"; };
    made.allocate = made.host_allocate = [](int32_t, uint64_t bytes, void** memory) -> int32_t {
      if (bytes > uint64_t{1} << 30) return 2;
      *memory = std::malloc(std::max<uint64_t>(bytes, 1));
      return 0;
    };
    made.free = made.host_free = [](int32_t, void* memory) -> int32_t {
      std::free(memory);
      return 0;
    };
    made.stream_create = [](int32_t, int32_t, void**) -> int32_t { return 0; };
    made.stream_destroy = [](int32_t, void*) -> int32_t { return 0; };
    return made;
  }();
  return Device(table, 0);
}

inline WorkPlace& place_on_paper() {
  static const auto none = std::move(Residents::make(device_on_paper(), {}).value());
  static DevicePlace place(*none);
  return place;
}

// ---- The bucket ----

// `n` ranks on one host.
inline std::vector<uint32_t> ranks_on_one_host(uint32_t n) {
  return std::vector<uint32_t>(n, 0);
}

struct PaperBucket {
  // hosts[r] is the host of rank r. The bucket belongs to `rank`.
  PaperBucket(uint32_t route, uint32_t rank, const std::vector<uint32_t>& hosts)
      : bucket(context, {{}, route}, 3) {
    context.name = "set";
    context.rank = rank;
    context.world = static_cast<uint32_t>(hosts.size());
    const Group world = Group::joined(rank, hosts).value();
    context.owners_per_host = world.least_per_host();
    join(PENSTOCK_LEVEL_WORLD, world);
    join(PENSTOCK_LEVEL_LOCAL, world.local());
    join(PENSTOCK_LEVEL_CROSS, world.cross());
    const auto kinds = legs_of(route);
    for (uint32_t leg = 0; leg < kinds.size(); ++leg) {
      if (!kinds[leg].encodes) continue;
      Coding& coding = *bucket.codings.emplace_back(std::make_unique<Coding>());
      coding.links = &context.at(kinds[leg].level);
      coding.leg = leg;
      coding.to_owners = kinds[leg].pattern == PENSTOCK_ALL_TO_ALL;
      coding.of_sums = bucket.codings.size() > 1;
      coding.failed_owners.resize(coding.links->group.size());
    }
  }
  PaperBucket(uint32_t rank, uint32_t n_ranks)
      : PaperBucket(PENSTOCK_ROUTE_FLAT, rank, ranks_on_one_host(n_ranks)) {}

  void join(uint32_t level, const Group& group) {
    LevelLinks& links = context.at(level);
    Channel& channel = channels[level - PENSTOCK_LEVEL_WORLD];
    links.group = group;
    links.transport.channel = &channel;
    channel.group = links.group.view(0);
  }

  Coding& coding(size_t number = 0) { return *bucket.codings[number]; }

  // Adds a whole gradient with `numel` elements, and its item.
  ItemRun& add(const std::string& name, uint64_t numel, std::vector<RoundNeed> rounds) {
    gradients.emplace_back(DeclaredGradient(name, gradients.size(), {static_cast<int64_t>(numel)}));
    PieceRun& piece = bucket.pieces.emplace_back();
    piece.gradient = &gradients.back();
    piece.place = &context.host;
    piece.piece = {piece.gradient->index, 0, numel, 0};
    return add_item(0, piece, {0, numel}, std::move(rounds));
  }
  // Adds a further item for a range of a piece.
  ItemRun& add_item(size_t number, PieceRun& piece, const ElementRange& range,
                    std::vector<RoundNeed> rounds) {
    ItemRun& item = coding(number).items.emplace_back();
    item.of = &piece;
    item.gradient = piece.gradient;
    item.range = item.extent = range;
    item.compressor = compressor.get();
    item.memory = memory.get();
    item.rounds = std::move(rounds);
    return item;
  }

  Status lay_out() { return penstock::lay_out(bucket, states); }

  const std::vector<std::unique_ptr<MessageRun>>& messages(size_t leg = 0, uint32_t round = 0) {
    return bucket.legs[leg].messages[round];
  }
  MessageRun& message(size_t number = 0, size_t leg = 0, uint32_t round = 0) {
    return *messages(leg, round)[number];
  }

  SetContext context;
  std::array<Channel, 3> channels;
  std::unique_ptr<CompressorInstance> compressor = compressor_named("topk");
  std::unique_ptr<MemoryInstance> memory = memory_named("residual");
  std::deque<Gradient> gradients;
  StateStore states{false};
  BucketRun bucket;
};

}  // namespace penstock::testing
