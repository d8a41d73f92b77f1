// Waits in place of an application that is told of results and never waits itself: what a wait does
// beside waiting (to hurry transports, to name ranks that do not come, to end when it is hopeless)
// is done for it too.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
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
    std::lock_guard lock(mutex_);
    step_ = step;
    woken_.notify_one();
  }
  // [control] What it waits for is over, or has been given up.
  void stop() {
    {
      std::lock_guard lock(mutex_);
      ending_ = true;
      woken_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run(const std::function<void(uint64_t)>& wait) {
    std::unique_lock lock(mutex_);
    while (true) {
      woken_.wait(lock, [&] { return ending_ || step_; });
      if (ending_) return;
      const uint64_t step = *std::exchange(step_, std::nullopt);
      lock.unlock();
      wait(step);
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable woken_;
  std::optional<uint64_t> step_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace penstock
