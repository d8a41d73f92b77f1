// The format of payloads in a gathered message.
//
// The part of one rank has flags, then for each item its kind and the count of each section, then
// the sections. Each section starts at a multiple of 8 bytes. Sections of indices are coded
// (coded_indices.hpp). All numbers are little-endian. docs/payloads.md has the table.
//
// Data from another rank is untrusted input: every number of the header is checked before it is
// used, and decode checks indices.
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

// Bytes before the sections: the flags, then for each item its kind and the count of each section.
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

// Reads the header of one rank. Errors: INVALID_PAYLOAD.
class HeaderReader {
 public:
  HeaderReader(const MessageRun& message, const std::byte* header)
      : message_(message), cursor_(header) {}
  uint32_t flags() { return take(); }
  // Reads the kind and counts of the item's payload that has arrived.
  Status read(const BucketRun& bucket, ItemRun& item, uint32_t round, uint32_t rank);

 private:
  uint32_t take();
  const MessageRun& message_;
  const std::byte* cursor_;
};

// Bytes of the part for `items` with every section at capacity.
uint64_t gathered_capacity(const Coding& coding, const std::vector<size_t>& items, uint32_t round);

// Bytes of the part in an announced message: without a header, and uncoded.
uint64_t sections_capacity(const Coding& coding, const std::vector<size_t>& items, uint32_t round);

}  // namespace penstock
