// Waits in place of an application that is told of results and never waits itself: what a wait does
// beside waiting (to hurry transports, to name ranks that do not come, to end when it is hopeless)
// is done for it too.
#pragma once

#include "core/base/mutex.hpp"

#include <functional>
#include <optional>
#include <thread>
#include <utility>

namespace penstock {

class StandIn {
 public:
  ~StandIn() { stop(); }

  // [control] `wait` gets the number of the step, on the thread that is started here.
  void start(std::function<void(uint64_t)> wait) {
    if (!thread_.joinable()) thread_ = std::thread([this, wait = std::move(wait)] { run(wait); });
  }
  // [any] That step is to be waited for.
  void wake(uint64_t step) {
    const Lock lock(mutex_);
    step_ = step;
    woken_.notify_one();
  }
  // [control] What it waits for is over, or has been given up.
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
