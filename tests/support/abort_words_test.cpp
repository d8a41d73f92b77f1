#include <gtest/gtest.h>
#include <stdexcept>

namespace penstock::abort_words_test {
namespace {

[[noreturn]] void fail() {
  throw std::runtime_error("words that a capture would take along");
}

void throw_while_stderr_is_captured() {
  ::testing::internal::CaptureStderr();
  []() noexcept { fail(); }();
}

TEST(AProgramThatAborts, TellsWhyAlsoWhereATestCapturesStderr) {
  // A child that is started anew begins with the stderr that is looked at.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(throw_while_stderr_is_captured(), "words that a capture would take along");
}

}  // namespace
}  // namespace penstock::abort_words_test
