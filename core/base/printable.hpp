// Escapes text from plugins, peers and files before it reaches a terminal.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

// The text without characters that could move the cursor, forge a line or hide text: line ends and
// tabs become spaces; control characters (U+0080 to U+009F too) become \xNN; characters that change
// the writing direction or have no width become \uNNNN or \UNNNNNNNN.
std::string printable(std::string_view text);

// Like printable(), for a text of several lines: line ends are kept.
std::string printable_lines(std::string_view text);

// Like printable(), for a piece of text within a message, such as a key or a value: a line end
// becomes \n, a tab \t. Every text that is put into an error message goes through this
// (format_error).
std::string printable_piece(std::string_view text);

// Whether the text equals its printable_piece, so no copy is needed.
bool is_printable(std::string_view text);

}  // namespace penstock
