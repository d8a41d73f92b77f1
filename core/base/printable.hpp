// Text from plugins, peers and files on its way to a terminal.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

// The text without control characters, which could move the cursor, forge a line or worse: a line's
// end and a tab become spaces, what else there is of them becomes \xNN. Those of Unicode (U+0080 to
// U+009F) count, too.
std::string printable(std::string_view text);

// The same for a text of several lines: their ends stay.
std::string printable_lines(std::string_view text);

}  // namespace penstock
