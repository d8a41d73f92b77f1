// Slices per thread are part of Linux's earliest-eligible-virtual-deadline-first scheduling, since
// 6.12: a waking thread with the shorter slice has the earlier deadline and takes the core at once.
// A thread that yields gives up one slice: a short one, then, instead of milliseconds.
#include "core/comm/communication_slice.hpp"

#ifdef __linux__
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#endif

namespace penstock {

#ifdef __linux__

namespace {

// struct sched_attr of linux/sched/types.h, first version; glibc 2.36 has none.
struct Attributes {
  uint32_t size;
  uint32_t policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime_ns;
  uint64_t deadline_ns;
  uint64_t period_ns;
};
constexpr uint64_t kSliceNs = 100'000;    // the least the kernel grants
constexpr unsigned long kSlackNs = 1000;  // how late a sleep may end; 50 us unless asked
constexpr uint32_t kOrdinary = 0;         // SCHED_OTHER

}  // namespace

void ask_for_punctual_sleeps() {
  prctl(PR_SET_TIMERSLACK, kSlackNs, 0, 0, 0);
}

void ask_for_short_slice() {
  ask_for_punctual_sleeps();
  Attributes attributes{};
  attributes.size = sizeof attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  // Whoever runs this process under another policy knows why.
  if (attributes.policy != kOrdinary) return;
  attributes.size = sizeof attributes;
  attributes.runtime_ns = kSliceNs;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

#else

void ask_for_punctual_sleeps() {}

void ask_for_short_slice() {}

#endif

}  // namespace penstock
