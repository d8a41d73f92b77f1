// See header.hpp. Count and length have seven bits per byte, the lowest first; the top bit is set
// if more bytes follow. So a small section has a small header.
#include <wire/header.hpp>

#include <cstring>

namespace penstock::wire {
namespace {

constexpr uint64_t kFixedBytes = 3;

uint64_t number_bytes(uint64_t number) {
  return number == 0 ? 1 : (static_cast<uint64_t>(std::bit_width(number)) + 6) / 7;
}

unsigned char* write_number(uint64_t number, unsigned char* target) {
  for (; number >= 0x80; number >>= 7) *target++ = static_cast<unsigned char>(number | 0x80);
  *target++ = static_cast<unsigned char>(number);
  return target;
}

// Takes a number from the front of `bytes`. Returns false if the number does not end in `bytes`, or
// has more than 64 bits or more bytes than it needs.
bool read_number(std::span<const unsigned char>& bytes, uint64_t& number) {
  number = 0;
  for (uint64_t i = 0; i < bytes.size() && i < 10; ++i) {
    const uint64_t seven = bytes[i] & 0x7fu;
    if (i == 9 && seven > 1) return false;
    number |= seven << (7 * i);
    if ((bytes[i] & 0x80u) != 0) continue;
    const bool is_shortest = i == 0 || seven != 0;
    bytes = bytes.subspan(i + 1);
    return is_shortest;
  }
  return false;
}

}  // namespace

uint64_t header_bytes(const Header& header) noexcept {
  return kFixedBytes + number_bytes(header.count) + number_bytes(header.length);
}

unsigned char* write_header(const Header& header, unsigned char* target) noexcept {
  target[0] = header.coding;
  std::memcpy(target + 1, &header.parameter, sizeof header.parameter);
  return write_number(header.length, write_number(header.count, target + kFixedBytes));
}

std::string read_section(std::span<const unsigned char> bytes, Section& section) {
  if (bytes.size() < kFixedBytes)
    return sentence("has ", bytes.size(), " bytes, its header alone takes more");
  section.header.coding = bytes[0];
  std::memcpy(&section.header.parameter, bytes.data() + 1, sizeof section.header.parameter);
  std::span<const unsigned char> rest = bytes.subspan(kFixedBytes);
  if (!read_number(rest, section.header.count) || !read_number(rest, section.header.length))
    return "has a header in which a number does not end where it should";
  if (section.header.length > rest.size())
    return sentence("claims ", section.header.length, " bytes, of which ", rest.size(),
                    " are there");
  section.body = rest.first(section.header.length);
  section.bytes = bytes.size() - rest.size() + section.header.length;
  return {};
}

}  // namespace penstock::wire
