// Ranks that live but do not come: in steps, in operations, and in circles.
#include "core/control/testing.hpp"

#include "core/base/clock.hpp"
#include "core/control/address.hpp"
#include "core/control/socket.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>

namespace penstock::stall_test {
namespace {

using testing::contains;
using testing::kLongUs;
using testing::run_world;

// Waits in a step until the step is over for every waiting rank.
Status wait_in_step(Control& control, uint64_t step) {
  std::promise<Status> ended;
  control.step_wait("model", step, {0, 1, 2}, [&](Status reason) { ended.set_value(reason); });
  return ended.get_future().get();
}

TEST(Stall, AStepThatARankDoesNotReachIsWarnedOfByNameAndEndsAtTheLimit) {
  constexpr uint64_t kLimitUs = 2'500'000;
  std::promise<std::string> warned;
  std::atomic<int> warnings = 0;
  const uint64_t begin_us = now_us();
  run_world(
      3,
      [&](Control& control) {
        control.note("validation");
        EXPECT_TRUE(control.agree("start", "", {}, kLongUs).ok());
        if (control.rank() == 1) {
          std::future<std::string> first = warned.get_future();
          ASSERT_EQ(first.wait_for(std::chrono::seconds(30)), std::future_status::ready);
          const std::string text = first.get();
          EXPECT_TRUE(contains(text, "for step 7 of set 'model', which rank 1 has not reached"))
              << text;
          EXPECT_TRUE(contains(text, "rank 1: it last did: validation")) << text;
        } else {
          const Status status = wait_in_step(control, 7);
          EXPECT_EQ(status.code(), Code::deadline_exceeded);
          EXPECT_TRUE(
              contains(status.message(), "rank 1 did not come to step 7 of set 'model' within"))
              << status.message();
          EXPECT_TRUE(contains(status.message(), "raise runtime.busy_limit_s")) << status.message();
        }
        // The run ends, also for the rank that did not come.
        EXPECT_EQ(control.get("never", kLongUs).status().code(), Code::deadline_exceeded);
      },
      [&](Control::Options& options) {
        options.warning_us = 200'000;
        options.busy_limit_us = kLimitUs;
        options.on_warning = [&](std::string text) {
          if (contains(text, "0 and 2") && warnings++ == 0) warned.set_value(std::move(text));
        };
      });
  EXPECT_GE(warnings, 1);
  EXPECT_LT(now_us() - begin_us, kLimitUs + 10'000'000u);
}

TEST(Stall, AWaitThatIsOverIsForgottenAndARankThatIsThroughIsNotWaitedFor) {
  std::atomic<int> warnings = 0;
  run_world(
      2,
      [&](Control& control) {
        if (control.rank() == 0) {
          const uint64_t wait = control.step_wait(
              "model", 3, {0, 1}, [](Status) { ADD_FAILURE() << "the wait was over"; });
          control.step_wait_over(wait);
        }
        // Longer than the limit. The wait is over, so no other rank needs to come.
        EXPECT_EQ(control.get("nothing", 2'500'000).status().code(), Code::deadline_exceeded);
        EXPECT_TRUE(control.agree("end", "", {}, kLongUs).ok());
      },
      [&](Control::Options& options) {
        options.warning_us = 1'500'000;
        options.busy_limit_us = 2'000'000;
        options.on_warning = [&](std::string text) {
          if (contains(text, "step 3")) ++warnings;
        };
      });
  EXPECT_EQ(warnings, 0);
}

TEST(Stall, ASlowLineIsReportedAgainOnlyWhereAWaitIsTwiceAsLong) {
  constexpr uint64_t kFirstUs = 100'000;
  std::atomic<int> warnings = 0;
  std::array<uint64_t, 3> longest_us{};  // by rank: its longest step
  run_world(
      3,
      [&](Control& control) {
        for (uint64_t step = 0; step < 4; ++step) {
          EXPECT_TRUE(control.agree(fmt::format("before {}", step), "", {}, kLongUs).ok());
          const uint64_t begin_us = now_us();
          const uint64_t wait = control.step_wait("model", step, {0, 1, 2}, [](Status) {});
          std::this_thread::sleep_for(std::chrono::milliseconds(350));
          control.step_wait_over(wait);
          EXPECT_TRUE(control.agree(fmt::format("after {}", step), "", {}, kLongUs).ok());
          uint64_t& longest = longest_us.at(control.rank());
          longest = std::max(longest, now_us() - begin_us);
        }
      },
      [&](Control::Options& options) {
        options.warning_us = kFirstUs;
        options.on_warning = [&](std::string text) {
          if (contains(text, "for messages of step")) ++warnings;
        };
      });
  EXPECT_GE(warnings, 1);
  int doubled = 0;  // how often the first age of a warning fits into the longest step
  while (*std::max_element(longest_us.begin(), longest_us.end()) >= kFirstUs << doubled) ++doubled;
  EXPECT_LE(warnings, doubled);
}

TEST(Stall, ARankThatLeavesInMidStepIsNamedAtOnce) {
  const uint64_t begin_us = now_us();
  run_world(3, [&](Control& control) {
    EXPECT_TRUE(control.agree("start", "", {}, kLongUs).ok());
    if (control.rank() == 2) return;
    const Status status = wait_in_step(control, 4);
    EXPECT_EQ(status.code(), Code::peer_failed);
    EXPECT_TRUE(contains(status.message(),
                         "rank 2 has left the run after 0 steps of set 'model'; other ranks wait "
                         "for it in step 4"))
        << status.message();
  });
  EXPECT_LT(now_us() - begin_us, 10'000'000u);
}

TEST(Stall, ARankThatLeavesAfterTheStepIsNoFailure) {
  std::vector<std::shared_ptr<Activity>> activities;
  for (int rank = 0; rank < 2; ++rank) activities.push_back(std::make_shared<Activity>());
  run_world(
      2,
      [&](Control& control) {
        if (control.rank() == 1) {
          activities[1]->add_set("model")->done(5);
          return;
        }
        std::atomic<bool> ended = false;
        const uint64_t wait = control.step_wait("model", 4, {0, 1}, [&](Status) { ended = true; });
        EXPECT_EQ(control.get("nothing", 500'000).status().code(), Code::deadline_exceeded);
        control.step_wait_over(wait);
        EXPECT_FALSE(ended);
      },
      [&](Control::Options& options) { options.activity = activities[options.rank]; });
}

TEST(Stall, OperationsThatWaitForEachOtherEndWithBothNames) {
  std::atomic<int> warnings = 0;
  run_world(
      2,
      [&](Control& control) {
        std::promise<Status> ended;
        const uint64_t request =
            control.request({control.rank() == 0 ? "loss" : "accuracy", {}, "", ""},
                            [&](Status status, OperationResponse) { ended.set_value(status); });
        control.blocked(request);
        const Status status = ended.get_future().get();
        EXPECT_EQ(status.code(), Code::mismatch);
        for (const char* part :
             {"ranks wait for each other", "rank 0 waits in 'loss'", "rank 1 waits in 'accuracy'"})
          EXPECT_TRUE(contains(status.message(), part)) << status.message();
        EXPECT_TRUE(control.agree("end", "", {}, kLongUs).ok());
      },
      [&](Control::Options& options) {
        options.circle_us = 2'000'000;
        options.warning_us = 200'000;
        options.on_warning = [&](std::string text) {
          if (contains(text, "they wait for each other")) ++warnings;
        };
      });
  EXPECT_GE(warnings, 1);
}

TEST(Stall, AnOperationThatAProgramDoesNotYetWaitForMakesNoCircle) {
  run_world(
      2,
      [&](Control& control) {
        std::promise<Status> first, second;
        const auto ask = [&](const char* name, std::promise<Status>& promise) {
          return control.request({name, {}, "", ""}, [&promise](Status status, OperationResponse) {
            promise.set_value(status);
          });
        };
        if (control.rank() == 0) {
          control.blocked(ask("loss", first));
        } else {
          ask("accuracy", second);
          // Computes for longer than the limit for circles.
          EXPECT_EQ(control.get("nothing", 900'000).status().code(), Code::deadline_exceeded);
          ask("loss", first);
        }
        EXPECT_TRUE(first.get_future().get().ok());
        if (control.rank() == 0) ask("accuracy", second);
        EXPECT_TRUE(second.get_future().get().ok());
      },
      [](Control::Options& options) { options.circle_us = 200'000; });
}

TEST(Stall, ARefusalIsTheErrorOfEveryOtherRank) {
  run_world(3, [](Control& control) {
    const Status status =
        control.rank() == 1
            ? control.refuse("set model", not_found("there is no plugin 'topkk'"), {})
            : control.agree("set model", "same", {}, kLongUs);
    EXPECT_TRUE(contains(status.message(), "there is no plugin 'topkk'")) << status.message();
    EXPECT_EQ(contains(status.message(), "rank 1 cannot take part"), control.rank() != 1);
    EXPECT_TRUE(control.agree("end", "", {}, kLongUs).ok());
  });
}

TEST(Activity, TellsTheNewestAndHowLongACallHasLasted) {
  Activity activity;
  EXPECT_EQ(activity.text(), "");
  activity.did("asked for operation 'x'");
  EXPECT_EQ(activity.text(), "asked for operation 'x'");
  const auto steps = activity.add_set("model");
  steps->at(Activity::Phase::waits, 12);
  EXPECT_EQ(activity.text(), "wait for step 12 of set 'model'");
  {
    const PluginCall call(&activity.engine, "compressor", "topk", "encode", "bucket 3", "model",
                          12);
    EXPECT_FALSE(activity.engine.lasting(kLongUs).has_value());
    const auto lasting = activity.engine.lasting(0);
    ASSERT_TRUE(lasting.has_value());
    EXPECT_EQ(lasting->text, "encode of compressor 'topk' for bucket 3 of set 'model', step 12");
  }
  EXPECT_FALSE(activity.engine.lasting(0).has_value());
  steps->done(13);
  ASSERT_EQ(activity.steps_done().size(), 1u);
  EXPECT_EQ(activity.steps_done()[0].second, 13u);
}

TEST(Addresses, OfAnotherHostAreNeitherLoopbackNorThisHostsOwn) {
  const std::vector<std::string> own = control::own_addresses().value();
  std::vector<std::string> theirs = own;
  theirs.push_back("192.0.2.7");
  EXPECT_EQ(control::reachable(theirs, false), std::vector<std::string>{"192.0.2.7"});
  EXPECT_EQ(control::reachable({"192.0.2.7"}, true),
            (std::vector<std::string>{"127.0.0.1", "::1", "192.0.2.7"}));
  EXPECT_NE(control::network_place(), 0u);
}

TEST(Addresses, OfARunOnOneHostAreLoopbackAlone) {
  for (const bool all_are_here : {true, false}) {
    testing::AddressBoard board;
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        Control::Options options = testing::quick_options(rank, 2);
        options.all_are_here = all_are_here;
        options.exchange_address = board.exchange(rank);
        Result<std::unique_ptr<Control>> control = Control::start(std::move(options));
        ASSERT_TRUE(control.ok()) << control.status().message();
        if (rank == 0) {
          // The server listens only on the addresses that it announces.
          const std::string address = board.address();
          const std::string port = address.substr(address.rfind('|') + 1);
          const std::vector<std::string> own = control::own_addresses().value();
          EXPECT_EQ(contains(address, "|127.0.0.1|"), all_are_here) << address;
          const auto outside = std::find_if_not(own.begin(), own.end(), control::is_loopback);
          if (outside != own.end()) {
            const Result<control::Handle> socket =
                control::connect_to(*outside, static_cast<uint16_t>(std::stoi(port)), kLongUs);
            EXPECT_EQ(socket.ok(), !all_are_here);
          }
        }
        EXPECT_TRUE((*control)->agree("end", "", {}, kLongUs).ok());
        (*control)->stop();
      });
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace penstock::stall_test
