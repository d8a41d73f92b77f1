// The simulated machine: its whole state, and one lock. Work of a device runs under this lock, so
// two kernels never run together and may have static shared memory. Functions of the host run
// without the lock, on a separate thread, as with the real runtime.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <vector>

#include "journal.hpp"
#include "memory.hpp"
#include "state.hpp"

namespace penstock::simulated {

using Lock = std::unique_lock<std::mutex>;

// Every member except `mutex` needs the lock.
class Machine {
 public:
  explicit Machine(const Settings& settings);

  std::mutex mutex;
  Settings settings;
  Memory memory;
  Journal journal;
  Orders failing_calls, failing_work;
  std::vector<Device> devices;
  std::map<uint64_t, std::unique_ptr<Stream>> streams;  // streams that the program has made
  std::map<uint64_t, Event> events;
  std::map<uint64_t, Graph> graphs, ready_graphs;

  void reset(const Settings& settings);
  uint64_t generation() const { return generation_; }  // counts resets; needs no lock
  // An id for any kind of object. An id is never used twice.
  uint64_t new_id() { return n_ids_ += 16; }

  // A kernel stays loaded until the process ends, because a program loads it only once. Returns
  // whether the kernel was new on this device. Loading waits until the device has done its work.
  bool load(int device, const void* kernel) { return loaded_[device].insert(kernel).second; }

  // ---- Queueing (scheduler.cpp) ---- If the stream is captured, the operation becomes a part of
  // the graph.
  void queue(Stream& stream, Operation operation);

  // ---- Running ---- Each function runs queued work until its stream, record or device is done, in
  // an order that streams and events allow. It does not wait for work that other threads queue
  // later.
  cudaError_t finish(Lock& lock, const Stream& stream);
  cudaError_t finish(Lock& lock, std::shared_ptr<Record> record);
  cudaError_t finish_device(Lock& lock, int device);
  // Sometimes runs some work when a program asks for a state. After many answers without progress
  // (`fruitless`) it runs some of the work for which `stream` waits.
  void answer(Stream& stream, uint64_t& fruitless);

  bool idle(int device) const;
  // Every stream that may have work, first the default streams of the devices.
  std::vector<Stream*> all_streams() const;
  void wake() { changed_.notify_all(); }
  template <typename Done>
  void wait_for_change(Lock& lock, const Done& done) {
    changed_.wait(lock, done);
  }

 private:
  template <typename Unfinished>
  cudaError_t run_until(Lock& lock, int device, const Unfinished& unfinished);
  cudaError_t lost() const;
  Stream* pick(const std::vector<Stream*>& for_whom);
  Stream* pick_any();
  Stream* step_toward(Stream& stream, std::vector<Stream*>* looked_at = nullptr);
  bool end_deadlock(const std::vector<Stream*>& for_whom);
  bool blockers(const Stream& stream, std::vector<Stream*>& found) const;
  bool is_blocked(const Stream& stream) const;
  void run_first(Stream& stream);
  void run_on_device(Stream& stream, Operation& operation);
  void end_first(Stream& stream);
  void serve_host_functions();
  bool chance(double share);
  std::size_t below(std::size_t n) { return random_() % n; }

  std::condition_variable changed_;  // work has ended or was queued
  std::mt19937_64 random_;
  uint64_t n_ids_ = 0x57000000;
  uint64_t n_queued_ = 0;
  std::atomic<uint64_t> generation_{0};
  std::map<int, std::set<const void*>> loaded_;  // by device
  std::deque<Stream*> host_functions_;           // the first operation waits for the thread
  bool serving_ = false;
};

// The machine of this process. Never destroyed, because threads may outlive static objects.
Machine& machine();

}  // namespace penstock::simulated
