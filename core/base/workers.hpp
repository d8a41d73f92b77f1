// Threads that share the work of one plugin call: the implementation of penstock/workers.h.
#pragma once

#include "core/base/mutex.hpp"

#include <penstock/workers.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace penstock {

// Concurrent runs are safe: one caller gets the threads, the other callers do their work alone.
class Workers {
 public:
  using Task = void (*)(void* context, uint32_t index);

  Workers();
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // From now on `count` threads take part in a run, the caller's thread included; at least 1, which
  // starts no thread. Must not be called during a run. Starts fewer threads if the system refuses a
  // thread.
  void resize(uint32_t count);
  // Ends the threads; callers execute later runs alone.
  void stop() { resize(1); }

  uint32_t count() const { return count_.load(std::memory_order_relaxed); }  // [any]
  void run(uint32_t n_tasks, Task task, void* context) noexcept;             // [any]

  // The C table over count and run; valid as long as this object.
  const penstock_workers* table() const { return &table_; }

 private:
  struct Job {
    uint32_t n_tasks = 0;
    Task task = nullptr;
    void* context = nullptr;
  };

  void serve() noexcept;
  static void take_all(const Job& job) noexcept;
  void take_tasks(const Job& job) noexcept;

  penstock_workers table_{};
  std::atomic<uint32_t> count_{1};
  Mutex running_;  // held by the caller that uses the threads

  std::vector<std::thread> threads_ PENSTOCK_GUARDED_BY(running_);

  Mutex mutex_;
  Condition wake_, idle_;
  // Job of the current run; without a task: none.
  Job job_ PENSTOCK_GUARDED_BY(mutex_);
  uint64_t n_runs_ PENSTOCK_GUARDED_BY(mutex_) = 0;    // lets a thread take part in a run only once
  uint32_t n_active_ PENSTOCK_GUARDED_BY(mutex_) = 0;  // threads that work on the job
  bool stopping_ PENSTOCK_GUARDED_BY(mutex_) = false;
  std::atomic<uint32_t> next_{0};  // the job's first task that is not taken
};

}  // namespace penstock
