// Threads that share the work of one call of a plugin: what stands behind penstock/workers.h.
#pragma once

#include "core/base/mutex.hpp"

#include <penstock/workers.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace penstock {

// Runs from several callers at once are safe: one has the threads, the others do their work alone.
class Workers {
 public:
  using Task = void (*)(void* context, uint32_t index);

  Workers();
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // `count` threads take part in a run from now on, the caller's included; at least 1, which needs
  // no thread. Not while a run is under way. Starts fewer where the system refuses a thread.
  void resize(uint32_t count);
  // Ends the threads; later runs are done by their callers.
  void stop() { resize(1); }

  uint32_t count() const { return count_.load(std::memory_order_relaxed); }  // [any]
  void run(uint32_t n_tasks, Task task, void* context) noexcept;             // [any]

  // Calls the above; lives as long as this.
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
  Mutex running_;  // held by the one caller that has the threads

  std::vector<std::thread> threads_ PENSTOCK_GUARDED_BY(running_);

  Mutex mutex_;
  Condition wake_, idle_;
  Job job_ PENSTOCK_GUARDED_BY(mutex_);                // of the run under way; no task: none
  uint64_t n_runs_ PENSTOCK_GUARDED_BY(mutex_) = 0;    // so that a thread takes part in a run once
  uint32_t n_active_ PENSTOCK_GUARDED_BY(mutex_) = 0;  // threads at work on the job
  bool stopping_ PENSTOCK_GUARDED_BY(mutex_) = false;
  std::atomic<uint32_t> next_{0};  // the job's first task that nobody has
};

}  // namespace penstock
