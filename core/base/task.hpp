// A task that another thread executes, and the wait for its end.
#pragma once

#include "core/base/mutex.hpp"
#include "core/base/unless_thrown.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>

namespace penstock {

// Shared by the requesting and the executing thread: each may release it first.
class Task {
 public:
  explicit Task(std::function<Status()> body) : body_(std::move(body)) {}

  // Called once by the executing thread.
  void carry_out() {
    // The requesting thread reports an allocation failure; this thread continues with other work.
    Status status = unless_thrown(body_);
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
  // True if the task ended in time. Otherwise it keeps running, so it must own everything it refers
  // to.
  bool wait_for(uint64_t limit_us, Status& status) {
    constexpr uint64_t kLongest = uint64_t{1} << 50;  // a longer time would overflow the clock
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
