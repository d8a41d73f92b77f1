// The test kit for GoogleTest: statuses as assertions, and a test fails if it leaks statuses. No
// other header of this folder needs GoogleTest.
#pragma once

#include <gtest/gtest.h>

#include <testing/instances.hpp>

namespace penstock::test {

inline ::testing::AssertionResult succeeds(penstock_status* status) {
  const Outcome outcome = take(status);
  if (outcome.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "error " << outcome.code << ": " << outcome.message;
}

// True for an error of `code` whose message contains `part`.
inline ::testing::AssertionResult fails_with(penstock_status* status, uint32_t code,
                                             const std::string& part) {
  const Outcome outcome = take(status);
  if (outcome.code == code && outcome.message.find(part) != std::string::npos)
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "expected error " << code << " with '" << part
                                       << "', got " << outcome.code << ": " << outcome.message;
}

#define PENSTOCK_EXPECT_OK(call) EXPECT_TRUE(::penstock::test::succeeds(call))
#define PENSTOCK_ASSERT_OK(call) ASSERT_TRUE(::penstock::test::succeeds(call))

// Checks after each test that no status was leaked.
class LeakListener : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override { before_ = live_statuses(); }
  void OnTestEnd(const ::testing::TestInfo&) override {
    EXPECT_EQ(live_statuses(), before_) << "statuses were made and never freed";
  }
  int64_t before_ = 0;
};
inline const bool listens_for_leaks = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new LeakListener);
  return true;
}();

}  // namespace penstock::test
