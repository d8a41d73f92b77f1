// For the tests of the wire format: one gathered message, whose parts the tests write and read by
// hand.
#pragma once

#include "core/bucket/coded_indices.hpp"
#include "core/bucket/gathers.hpp"
#include "core/bucket/testing.hpp"
#include "core/bucket/wire.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace penstock::testing {

// The bytes of a part, written by hand.
class Part {
 public:
  Part& words(const std::vector<uint32_t>& values) { return add(values); }
  Part& floats(const std::vector<float>& values) { return add(values); }
  Part& zeros(size_t count) {
    bytes_.append(count, '\0');
    return *this;
  }
  Part& text(const std::string& bytes) {
    bytes_ += bytes;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  template <typename T>
  Part& add(const std::vector<T>& values) {
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    return *this;
  }
  std::string bytes_;
};

// A bucket with one gathered message. This class allocates the message's memory; the layout does
// not.
struct Gathered : PaperBucket {
  using PaperBucket::PaperBucket;

  // Makes the message. All items must have been added before.
  void open(uint32_t pattern = PENSTOCK_ALL_GATHER) {
    bucket.label = "bucket 3";
    message = make_message<GatherMessage>(bucket, coding(), coding().links->transport, pattern,
                                          PENSTOCK_UINT8);
    std::vector<size_t> items(coding().items.size());
    std::iota(items.begin(), items.end(), size_t{0});
    take_items(*message, std::move(items));
    for (ItemRun& item : coding().items) {
      item.own.emplace_back().shape(item.rounds[0], 0);
      item.received.emplace_back();
      for (uint32_t rank = 0; rank < message->group_size(); ++rank)
        item.received[0].emplace_back().shape(item.rounds[0], static_cast<int32_t>(rank));
    }
    message->receive_counts.resize(message->group_size());
    message->room_for.resize(message->group_size(), 4096);
  }
  // Places the parts one after another; `parts` has their sizes in bytes.
  void place(const std::vector<uint64_t>& parts) {
    uint64_t bytes = 0;
    for (const uint64_t part : parts) {
      message->send_offsets.push_back(bytes);
      message->send_counts.push_back(part);
      bytes += part;
    }
    message->uncoded_offset = bytes;
    bytes += uncoded();
    message->send = memory_of_bytes(bytes);
    std::memset(message->send.data(), 0xee, bytes);  // of an earlier step
    ASSERT_OK(message->before_encode(0));
  }
  uint64_t uncoded() { return uncoded_capacity(coding(), message->items, 0); }
  WorkMemory memory_of_bytes(uint64_t bytes) {
    return std::move(memory_of(*message, bytes).value());
  }
  template <typename T>
  void encode(ItemRun& item, uint32_t kind, size_t s, const std::vector<T>& values) {
    penstock_section& section = item.own[0].section(s);
    item.own[0].c()->kind = kind;
    section.count = values.size();
    std::copy(values.begin(), values.end(), static_cast<T*>(section.data));
  }
  Status close() { return message->prepare(leg, 0); }
  std::string sent() const {
    return {reinterpret_cast<const char*>(message->send.data()), message->message.count};
  }
  int64_t offset(const void* data, const WorkMemory& memory) const {
    return static_cast<const std::byte*>(data) - memory.data();
  }
  // Reads `parts`, one from each rank. Each part lies at the end of its 4096 bytes of memory.
  Status read(const std::vector<std::string>& parts) {
    message->receive = memory_of_bytes((4096 + uncoded()) * parts.size());
    message->receive_offsets.clear();
    message->decoded_offsets.clear();
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      message->receive_offsets.push_back(4096 * (rank + 1) - (parts[rank].size() + 7) / 8 * 8);
      message->receive_counts[rank] = parts[rank].size();
      message->decoded_offsets.push_back(4096 * parts.size() + uncoded() * rank);
      std::memcpy(message->receive.data() + message->receive_offsets[rank], parts[rank].data(),
                  parts[rank].size());
    }
    return message->read(leg, 0);
  }
  const penstock_section& came(ItemRun& item, uint32_t rank, size_t s) {
    return item.arrival(0, rank).section(s);
  }

  std::unique_ptr<GatherMessage> message;
  Leg leg;
};

}  // namespace penstock::testing
