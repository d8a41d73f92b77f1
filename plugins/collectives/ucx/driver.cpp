// See driver.hpp.
#include "driver.hpp"

#include "world.hpp"

#include <algorithm>

namespace penstock::ucx {
namespace {

// The receiver may answer only in its next step, so the sleeps grow.
constexpr std::chrono::microseconds kFirstSleep{50}, kLongestSleep{2000};

}  // namespace

Driver::Driver(World& world, std::mutex& mutex)
    : world_(world), mutex_(mutex), thread_([this] { loop(); }) {}

Driver::~Driver() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Driver::begin() {
  if (drives_ || world_.has_let_go()) return;
  drives_ = true;
  sleep_ = kFirstSleep;
  wake_.notify_one();
}

void Driver::loop() {
  std::unique_lock lock(mutex_);
  while (!stops_) {
    if (drives_ && world_.has_let_go()) drives_ = false;
    if (!drives_) {
      wake_.wait(lock);
      continue;
    }
    sleep_ = world_.progress() ? kFirstSleep : std::min(2 * sleep_, kLongestSleep);
    wake_.wait_for(lock, sleep_);
  }
}

}  // namespace penstock::ucx
