// Ranks that leave the run one after the other.
#include "core/control/testing.hpp"
#include "tests/support/worlds.hpp"

#include <atomic>

namespace penstock::leaving_test {
namespace {

using testing::contains;
using testing::kLongUs;
using testing::run_world;

class LeavingWorld : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, LeavingWorld, test::worlds({1, 2, 3, 4, 8}));

TEST_P(LeavingWorld, LeavingInAnyOrderIsNoFailure) {
  std::atomic<int> aborts = 0;
  std::promise<void> first_left;
  std::shared_future<void> left = first_left.get_future().share();
  run_world(
      GetParam(),
      [&](Control& control) {
        // Rank 1 leaves first while the other ranks still use the store. The stop of rank 0 waits
        // for them.
        if (control.rank() == 1) {
          control.stop();
          first_left.set_value();
        } else if (control.size() > 1 && control.rank() > 1) {
          left.wait();
          EXPECT_TRUE(control.put("k", "v").ok());
          EXPECT_EQ(control.get("k", kLongUs).value(), "v");
        }
      },
      [&](Control::Options& options) { options.on_abort = [&](Status) { ++aborts; }; });
  EXPECT_EQ(aborts, 0);
}

TEST(Leaving, Rank0StaysUntilTheOthersHaveLeftAndNamesThem) {
  std::promise<void> named;
  std::shared_future<void> over = named.get_future().share();
  std::vector<std::string> warnings;
  run_world(
      3,
      [&](Control& control) {
        if (control.rank() != 0) {
          over.wait();
          EXPECT_TRUE(control.put("k", "v").ok());
          return;
        }
        while (warnings.empty()) EXPECT_FALSE(control.leave(10'000));
        named.set_value();
        while (!control.leave(10'000)) {
        }
      },
      [&](Control::Options& options) {
        options.warning_us = 50'000;
        options.linger_us = kLongUs;
        if (options.rank == 0)
          options.on_warning = [&](std::string text) { warnings.push_back(std::move(text)); };
      });
  ASSERT_FALSE(warnings.empty());
  EXPECT_TRUE(contains(warnings[0], "stays for ranks 1 and 2")) << warnings[0];
}

TEST(Leaving, AnAbortEndsTheStayOfRank0AndReachesTheOthers) {
  std::promise<void> ended;
  std::shared_future<void> over = ended.get_future().share();
  std::atomic<int> aborts = 0;
  run_world(
      3,
      [&](Control& control) {
        if (control.rank() != 0) return over.wait();
        EXPECT_FALSE(control.leave(10'000));
        control.abort(aborted("interrupted"));
        EXPECT_TRUE(control.leave(kLongUs));
        while (aborts < 2) std::this_thread::yield();
        ended.set_value();
      },
      [&](Control::Options& options) {
        options.linger_us = kLongUs;
        options.on_abort = [&](Status) { ++aborts; };
      });
}

TEST(Leaving, ARendezvousWithARankThatHasLeftFails) {
  std::promise<void> gone;
  run_world(3, [&](Control& control) {
    Status status;
    if (control.rank() == 2) {
      control.stop();
      gone.set_value();
      status = control.put("k", "v");
      EXPECT_EQ(status.code(), Code::aborted);
      return;
    }
    if (control.rank() == 1)
      gone.get_future().wait();  // rank 0 may come before rank 2 has left, rank 1 does not
    status = control.gather("late", "", {}, kLongUs).status();
    EXPECT_EQ(status.code(), Code::peer_failed);
    EXPECT_TRUE(contains(status.message(), "'late': rank 2 has left the run")) << status.message();
  });
}

}  // namespace
}  // namespace penstock::leaving_test
