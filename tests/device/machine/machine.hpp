// The simulated machine: all its state, and the one lock over it. Everything that runs on a device
// runs under that lock, so kernels, whose shared memory is static, never meet; functions of the
// host run without it, on a thread of their own, as with the real runtime.
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

// All members: under the lock, but for mutex itself.
class Machine {
 public:
  explicit Machine(const Settings& settings);

  std::mutex mutex;
  Settings settings;
  Memory memory;
  Journal journal;
  Orders failing_calls, failing_work;
  std::vector<Device> devices;
  std::map<uint64_t, std::unique_ptr<Stream>> streams;  // those that were made
  std::map<uint64_t, Event> events;
  std::map<uint64_t, Graph> graphs, ready_graphs;

  void reset(const Settings& settings);
  uint64_t generation() const { return generation_; }  // counts resets; needs no lock
  // Of anything; never given again.
  uint64_t new_id() { return n_ids_ += 16; }

  // Kernels stay loaded for the life of the process, as whoever has them loaded does so once.
  // Whether it was not yet: the device's work is done then.
  bool load(int device, const void* kernel) { return loaded_[device].insert(kernel).second; }

  // ---- Queueing (scheduler.cpp) ----
  // Or keeps it for the graph, where the stream is captured.
  void queue(Stream& stream, Operation operation);

  // ---- Running ----
  // Each runs queued work, in an order that streams and events allow, until what it names is done.
  // What others queue behind this call is not waited for.
  cudaError_t finish(Lock& lock, const Stream& stream);
  cudaError_t finish(Lock& lock, std::shared_ptr<Record> record);
  cudaError_t finish_device(Lock& lock, int device);
  // What a question does besides answering: sometimes some work; after many in vain, some of what
  // `stream` waits for.
  void answer(Stream& stream, uint64_t& fruitless);

  bool idle(int device) const;
  // All streams that may have work, those of the devices' own first.
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
  std::deque<Stream*> host_functions_;           // whose first operation waits for the thread
  bool serving_ = false;
};

// The one of this process; never destroyed, for threads may outlive static objects.
Machine& machine();

}  // namespace penstock::simulated
