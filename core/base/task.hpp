// Something that another thread is asked to do, and the wait for its end.
#pragma once

#include "core/base/mutex.hpp"
#include "core/base/out_of_memory.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>

namespace penstock {

// Shared between who asks and who does it: either may let go first.
class Task {
 public:
  explicit Task(std::function<Status()> body) : body_(std::move(body)) {}

  // By the other thread, once.
  void carry_out() {
    // It is for who asks to say; this thread has other work.
    Status status = unless_out_of_memory(body_);
    const Lock lock(mutex_);
    status_ = std::move(status);
    done_ = true;
    ended_.notify_all();
  }
  Status wait() {
    Lock lock(mutex_);
    ended_.wait(mutex_, [this]() PENSTOCK_REQUIRES(mutex_) { return done_; });
    return status_;
  }
  // True when it ended in time; it is left to itself otherwise, and so must own what it refers to.
  bool wait_for(uint64_t limit_us, Status& status) {
    constexpr uint64_t kLongest = uint64_t{1} << 50;  // longer ones overflow the clock
    Lock lock(mutex_);
    if (!ended_.wait_for(mutex_, std::chrono::microseconds(std::min(limit_us, kLongest)),
                         [this]() PENSTOCK_REQUIRES(mutex_) { return done_; }))
      return false;
    status = status_;
    return true;
  }

 private:
  std::function<Status()> body_;
  Mutex mutex_;
  Condition ended_;
  bool done_ PENSTOCK_GUARDED_BY(mutex_) = false;
  Status status_ PENSTOCK_GUARDED_BY(mutex_);
};

}  // namespace penstock
