// How the payloads of a bucket lie in a gathered message.
//
// One rank's part: flags, then for each item its kind and the count of each section, then the
// sections, each starting at a multiple of 8 bytes; those of indices are coded (coded_indices.hpp).
// Little-endian. docs/payloads.md has the table.
// What comes from a peer is input: every number of the header is checked before it is used, and
// decode checks indices.
#pragma once

#include "core/bucket/flag.hpp"

namespace penstock {

// Sections begin at multiples of 8 bytes.
constexpr uint64_t round_up(uint64_t bytes) {
  return (bytes + 7) / 8 * 8;
}

// INVALID_PAYLOAD "set 's', bucket 1: the message of rank 2 for gradient 'g' WHAT". `item` may be
// null.
Status bad_payload(const BucketRun& bucket, const MessageRun& message, uint32_t rank,
                   const ItemRun* item, std::string_view what);

// The words before the sections: flags, then of each item its kind and the count of each section.
uint64_t header_bytes(const Coding& coding, const std::vector<size_t>& items, uint32_t round);

class HeaderWriter {
 public:
  explicit HeaderWriter(std::byte* header) : cursor_(header) {}
  void flags(uint32_t flags) { put(flags); }
  void item(PayloadStorage& payload);

 private:
  void put(uint32_t word);
  std::byte* cursor_;
};

// Of one rank. Errors: INVALID_PAYLOAD.
class HeaderReader {
 public:
  HeaderReader(const MessageRun& message, const std::byte* header)
      : message_(message), cursor_(header) {}
  uint32_t flags() { return take(); }
  // Kind and counts of what has arrived of an item.
  Status read(const BucketRun& bucket, ItemRun& item, uint32_t round, uint32_t rank);

 private:
  uint32_t take();
  const MessageRun& message_;
  const std::byte* cursor_;
};

// Bytes of the part for `items` with every section at capacity.
uint64_t gathered_capacity(const Coding& coding, const std::vector<size_t>& items, uint32_t round);

// Of an announced message: without header, and uncoded.
uint64_t sections_capacity(const Coding& coding, const std::vector<size_t>& items, uint32_t round);

}  // namespace penstock
