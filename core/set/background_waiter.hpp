// A thread that waits in place of an application that is notified of results and never waits
// itself. A wait also does other work: it hurries transports, names ranks that do not come, and
// ends when it is hopeless. This thread does that work for the application.
#pragma once

#include "core/base/mutex.hpp"

#include <functional>
#include <optional>
#include <thread>
#include <utility>

namespace penstock {

class BackgroundWaiter {
 public:
  ~BackgroundWaiter() { stop(); }

  // [control] Starts the thread. It calls `wait` with the number of each step of wake().
  void start(std::function<void(uint64_t)> wait) {
    if (!thread_.joinable()) thread_ = std::thread([this, wait = std::move(wait)] { run(wait); });
  }
  // [any] Makes the thread wait for this step.
  void wake(uint64_t step) {
    const Lock lock(mutex_);
    step_ = step;
    woken_.notify_one();
  }
  // [control] Ends the thread. The step that it waits for must be over or given up.
  void stop() {
    {
      const Lock lock(mutex_);
      ending_ = true;
      woken_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run(const std::function<void(uint64_t)>& wait) {
    Lock lock(mutex_);
    while (true) {
      woken_.wait(mutex_,
                  [this]() PENSTOCK_REQUIRES(mutex_) { return ending_ || step_.has_value(); });
      if (ending_) return;
      const uint64_t step = *std::exchange(step_, std::nullopt);
      lock.unlock();
      wait(step);
      lock.lock();
    }
  }

  Mutex mutex_;
  Condition woken_;
  std::optional<uint64_t> step_ PENSTOCK_GUARDED_BY(mutex_);
  bool ending_ PENSTOCK_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace penstock
