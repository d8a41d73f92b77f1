// The short slice of the communication thread.
#include "core/comm/communication_slice.hpp"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <thread>

namespace penstock::communication_slice_test {
namespace {

// struct sched_attr of linux/sched/types.h, first version.
struct Attributes {
  uint32_t size, policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime_ns, deadline_ns, period_ns;
};

Attributes of_this_thread() {
  Attributes attributes{};
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) std::abort();
  return attributes;
}

TEST(CommunicationSlice, AsksForAShortSliceAndForNothingElse) {
  Attributes before{}, after{};
  std::thread([&] {
    before = of_this_thread();
    ask_for_short_slice();
    after = of_this_thread();
  }).join();
  EXPECT_EQ(after.policy, before.policy);
  EXPECT_EQ(after.nice, before.nice);
  if (before.runtime_ns == 0) GTEST_SKIP() << "this kernel has no slices per thread (Linux 6.12)";
  EXPECT_EQ(after.runtime_ns, 100'000u);
  EXPECT_EQ(of_this_thread().runtime_ns, before.runtime_ns) << "another thread was changed";
}

TEST(CommunicationSlice, SleepsArePunctualForTheThreadThatAsks) {
  const int before = prctl(PR_GET_TIMERSLACK);
  int after = 0;
  std::thread([&] {
    ask_for_punctual_sleeps();
    after = prctl(PR_GET_TIMERSLACK);
  }).join();
  EXPECT_EQ(after, 1000);
  EXPECT_EQ(prctl(PR_GET_TIMERSLACK), before) << "another thread was changed";
}

}  // namespace
}  // namespace penstock::communication_slice_test
