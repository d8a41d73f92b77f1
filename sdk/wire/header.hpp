// What every coded section begins with: how it is coded, with which parameter, how many entries it
// has and how many bytes follow. docs/payloads.md has the bytes.
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

// Returns where the body begins. [any]
unsigned char* write_header(const Header& header, unsigned char* target) noexcept;

// Readers give entries in slices of a multiple of so many, but for the last.
inline constexpr uint64_t kSlice = 512;

// A section as it has arrived: its header, and its body, which lies within the bytes.
struct Section {
  Header header;
  std::span<const unsigned char> body;
  uint64_t bytes = 0;  // header and body
};

// Reads the header at the beginning of `bytes`, behind which other things may follow. Returns why
// it is refused, as the end of a sentence; nothing where it is not. [any]
std::string read_section(std::span<const unsigned char> bytes, Section& section);

// "has 3 positions", of its parts.
template <typename... Parts>
std::string sentence(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

}  // namespace penstock::wire
