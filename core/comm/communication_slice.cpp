// Slices per thread belong to Linux's scheduler EEVDF (earliest eligible virtual deadline first),
// since 6.12. A waking thread with a shorter slice has an earlier deadline and gets the core at
// once. A thread that yields gives up one slice, which is then short and not some milliseconds.
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

// The first version of struct sched_attr in linux/sched/types.h, which glibc 2.36 does not have.
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
constexpr uint64_t kSliceNs = 100'000;    // the kernel's minimum
constexpr unsigned long kSlackNs = 1000;  // how late a sleep may end; default 50 us
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
  // Another policy was chosen on purpose, so it stays.
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
