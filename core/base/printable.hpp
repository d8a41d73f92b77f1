// Text from plugins, peers and files on its way to a terminal.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

// The text without what could move the cursor, forge a line or show something else than is there: a
// line's end and a tab become spaces, control characters \xNN (those of Unicode, U+0080 to U+009F,
// count, too), and what turns the direction of writing or takes no room \uNNNN
// or \UNNNNNNNN.
std::string printable(std::string_view text);

// The same for a text of several lines: their ends stay.
std::string printable_lines(std::string_view text);

// The same for a piece of text within a message, such as a key or a value: a line's end is \n
// there, a tab \t. Every error's text that is put into a message goes through this (format_error).
std::string printable_piece(std::string_view text);

// Whether it is its own printable_piece: then there is nothing to copy.
bool is_printable(std::string_view text);

}  // namespace penstock
