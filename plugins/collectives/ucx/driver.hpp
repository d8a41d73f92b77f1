// Drives UCX while no message is under way. UCX reports the end of a send when it has a copy of the
// data, and moves the copy only while it is driven. The caller of a transport drives it only for
// messages, so the last bytes of the last message would stay.
//
// The end of the message cannot wait for these bytes: over TCP, UCX says that they have left only
// when the receiver has answered, and a receiver that has all its data is not driven either.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace penstock::ucx {

class World;

class Driver {
 public:
  // `mutex` is held by whoever calls UCX. Both must outlive the driver.
  Driver(World& world, std::mutex& mutex);
  ~Driver();  // the mutex must be free
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // The mutex is held. No message is under way: drives UCX until all sent data has left.
  void begin();
  // The mutex is held. A message is under way, and its caller drives UCX.
  void pause() { drives_ = false; }

 private:
  void loop();

  World& world_;
  std::mutex& mutex_;
  std::condition_variable wake_;
  std::chrono::microseconds sleep_{};
  bool drives_ = false;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace penstock::ucx
