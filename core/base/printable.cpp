#include "core/base/printable.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace penstock {

namespace {

enum class Lines { become_spaces, stay, are_named };

// Unicode marks that turn the direction of writing, end a line or are invisible. With such marks a
// text can look like another text.
struct Range {
  uint32_t first, last;
};
constexpr Range kUnseen[] = {{0x00AD, 0x00AD}, {0x061C, 0x061C}, {0x180E, 0x180E},
                             {0x200B, 0x200F}, {0x2028, 0x202E}, {0x2060, 0x206F},
                             {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}, {0xE0000, 0xE007F}};

bool is_unseen(uint32_t code) {
  return std::any_of(std::begin(kUnseen), std::end(kUnseen),
                     [&](const Range& range) { return code >= range.first && code <= range.last; });
}

// The bytes and the number of the UTF-8 character that begins here. If no character begins here,
// one byte.
size_t character_at(std::string_view text, uint32_t& code) {
  const auto byte = static_cast<unsigned char>(text[0]);
  const size_t n = byte < 0xC2 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : byte < 0xF5 ? 4 : 1;
  code = byte;
  if (n == 1 || n > text.size()) return 1;
  uint32_t whole = byte & (0xFFu >> (n + 1));
  for (size_t i = 1; i < n; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0) != 0x80) return 1;
    whole = whole << 6 | (next & 0x3Fu);
  }
  code = whole;
  return n;
}

bool is_control(uint32_t code) {
  return code < 0x20 || code == 0x7F || (code >= 0x80 && code < 0xA0);
}

std::string escaped(std::string_view text, Lines lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    uint32_t code = 0;
    const size_t n = character_at(text, code);
    // A byte outside ASCII that belongs to no character is left unchanged.
    const bool is_whole = n > 1 || code < 0x80;
    if ((code == '\n' || code == '\t') && lines != Lines::are_named) {
      out += code == '\n' && lines == Lines::stay ? '\n' : ' ';
    } else if (code == '\n' || code == '\t') {
      out += code == '\n' ? "\\n" : "\\t";
    } else if (is_whole && is_control(code)) {
      out += fmt::format("\\x{:02x}", code);
    } else if (is_whole && is_unseen(code)) {
      out += code > 0xFFFF ? fmt::format("\\U{:08x}", code) : fmt::format("\\u{:04x}", code);
    } else {
      out += text.substr(0, n);
    }
    text.remove_prefix(n);
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) {
  return escaped(text, Lines::become_spaces);
}

std::string printable_lines(std::string_view text) {
  return escaped(text, Lines::stay);
}

std::string printable_piece(std::string_view text) {
  return escaped(text, Lines::are_named);
}

bool is_printable(std::string_view text) {
  while (!text.empty()) {
    uint32_t code = 0;
    const size_t n = character_at(text, code);
    if ((n > 1 || code < 0x80) && (is_control(code) || is_unseen(code))) return false;
    text.remove_prefix(n);
  }
  return true;
}

}  // namespace penstock
