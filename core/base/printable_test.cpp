#include "core/base/printable.hpp"

#include "core/base/status.hpp"

#include <gtest/gtest.h>

namespace penstock::printable_test {
namespace {

TEST(Printable, EscapesWhatCouldSteerATerminal) {
  EXPECT_EQ(printable("a\x1b[31mb\x07\x7f\r"), "a\\x1b[31mb\\x07\\x7f\\x0d");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\x9b31m");  // the control sequence introducer of one character
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(Printable, LeavesOtherTextAlone) {
  EXPECT_EQ(printable("2 \xc2\xb5s, na\xc3\xafve \xe2\x86\x92"),
            "2 \xc2\xb5s, na\xc3\xafve \xe2\x86\x92");
  EXPECT_EQ(printable("\xc2"), "\xc2");
}

TEST(Printable, KeepsLinesOnlyWhereTheyAreOurs) {
  EXPECT_EQ(printable("one\ntwo\tthree"), "one two three");
  EXPECT_EQ(printable_lines("one\ntwo\x1b"), "one\ntwo\\x1b");
}

// Characters that make a key look like another key, or show an end of line that is not there.
TEST(Printable, EscapesMarksThatTurnTheDirectionOrTakeNoRoom) {
  EXPECT_EQ(printable("a\u202Eb\u2066c\u200Fd"), "a\\u202eb\\u2066c\\u200fd");
  EXPECT_EQ(printable("dens\u200Bity\uFEFF"), "dens\\u200bity\\ufeff");
  EXPECT_EQ(printable_lines("one\u2028two"), "one\\u2028two");
  EXPECT_EQ(printable("\U000E0041"), "\\U000e0041");
}

TEST(Printable, NamesTheLineEndsOfAPiece) {
  EXPECT_EQ(printable_piece("one\ntwo\tthree\x1b"), "one\\ntwo\\tthree\\x1b");
  EXPECT_TRUE(is_printable("na\xc3\xafve \xe2\x86\x92 \xc2\xb5"));
  EXPECT_FALSE(is_printable("one\n"));
  EXPECT_FALSE(is_printable("\u202E"));
}

// All text in messages: the text of a file, a variable of the environment, a text from a peer.
TEST(Errors, TextsThatAreQuotedCannotSteerATerminal) {
  const std::string key = "a\nb\u202Ec\x1b[2J";
  const Status status = invalid_argument("key \"{}\" is {}, at most {:>3}\nsee {}", key,
                                         std::string_view("\x07"), 7, "\xc2\x9b");
  EXPECT_EQ(status.message(), "key \"a\\nb\\u202ec\\x1b[2J\" is \\x07, at most   7\nsee \\x9b");
  EXPECT_EQ(Status(Code::internal, key + "x").message(), "a\nb\\u202ec\\x1b[2Jx");
  EXPECT_EQ(status.with_context(key).message().substr(0, 9), "a\\nb\\u202");
}

}  // namespace
}  // namespace penstock::printable_test
