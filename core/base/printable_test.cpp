#include "core/base/printable.hpp"

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

}  // namespace
}  // namespace penstock::printable_test
