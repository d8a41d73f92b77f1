// The header of every coded section: the coding, its parameter, the number of entries and the
// number of bytes that follow. docs/payloads.md has the bytes.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <sstream>
#include <string>

namespace penstock::wire {

static_assert(std::endian::native == std::endian::little,
              "numbers are copied in the order of the wire, which is little-endian");

struct Header {
  uint8_t coding = 0;
  int16_t parameter = 0;
  uint64_t count = 0;   // entries
  uint64_t length = 0;  // bytes behind the header
};

// The longest header.
inline constexpr uint64_t kMostHeaderBytes = 23;

// [any]
uint64_t header_bytes(const Header& header) noexcept;

// Writes the header to `target`. Returns the place where the body begins. [any]
unsigned char* write_header(const Header& header, unsigned char* target) noexcept;

// Readers return entries in slices of a multiple of kSlice entries, except the last slice.
inline constexpr uint64_t kSlice = 512;

// A received section: its header, and its body, which points into the received bytes.
struct Section {
  Header header;
  std::span<const unsigned char> body;
  uint64_t bytes = 0;  // header and body
};

// Reads the header at the beginning of `bytes`; other data may follow the section. Returns the
// reason for a refusal, as the end of a sentence; an empty text if the header is valid. [any]
std::string read_section(std::span<const unsigned char> bytes, Section& section);

// Joins the parts of a sentence, such as "has 3 positions".
template <typename... Parts>
std::string sentence(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

}  // namespace penstock::wire
