// Texts about the plugin calls of a rank.
#include "core/control/activity.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

namespace penstock::activity_test {
namespace {

// Otherwise a run of one rank would end with status 0, like a successful run.
TEST(PluginCallDeathTest, APluginThatEndsTheProcessIsNamedAndTheStatusIsNot0) {
  CallSlot slot;
  const auto in_a_call = [&](int status) {
    std::thread([&] {
      const PluginCall call(&slot, "compressor", "mine", "encode", "bucket 3", "model", 12);
      std::exit(status);
    }).join();
  };
  const char* said =
      "penstock: the plugin ended the process: encode of compressor 'mine' for bucket 3 of set "
      "'model', step 12 called exit\\(\\), where a plugin returns a status";
  EXPECT_EXIT(in_a_call(0), testing::ExitedWithCode(1), said);
  EXPECT_EXIT(in_a_call(3), testing::ExitedWithCode(1), said);
}

TEST(PluginCallDeathTest, AProgramMayEndWhileAnotherThreadIsInAPlugin) {
  const auto beside_a_call = [] {
    CallSlot slot;
    { const PluginCall over(&slot, "compressor", "mine", "encode"); }
    std::atomic<bool> is_in{false};
    std::thread([&] {
      const PluginCall call(&slot, "compressor", "mine", "encode");
      is_in = true;
      while (true) std::this_thread::yield();
    }).detach();
    while (!is_in) std::this_thread::yield();
    std::exit(0);
  };
  EXPECT_EXIT(beside_a_call(), testing::ExitedWithCode(0), "^$");
}

TEST(PluginCall, TheInnermostIsTold) {
  CallSlot slot;
  const PluginCall outer(&slot, "scheduler", "plans", "plan");
  {
    const PluginCall inner(&slot, "memory", "keeps", "record");
    EXPECT_EQ(slot.lasting(0)->text, "record of memory 'keeps'");
  }
  EXPECT_EQ(slot.lasting(0)->text, "plan of scheduler 'plans'");
}

TEST(PluginCall, CallsOfTwoThreadsEndInAnyOrder) {
  CallSlot slot;
  std::atomic<bool> has_begun{false}, may_end{false};
  std::thread first([&] {
    const PluginCall call(&slot, "scheduler", "plans", "plan");
    has_begun = true;
    while (!may_end) std::this_thread::yield();
  });
  while (!has_begun) std::this_thread::yield();
  {
    const PluginCall second(&slot, "memory", "keeps", "record");
    may_end = true;
    first.join();
    EXPECT_EQ(slot.lasting(0)->text, "record of memory 'keeps'");
  }
  EXPECT_FALSE(slot.lasting(0).has_value());
}

}  // namespace
}  // namespace penstock::activity_test
