// Workers for tests: a new thread for each task of a run, so that what tasks share shows.
#pragma once

#include <penstock/workers.h>

#include <cstdint>

namespace penstock::test {

class ThreadPerTask {
 public:
  explicit ThreadPerTask(uint32_t count);
  ThreadPerTask(const ThreadPerTask&) = delete;
  ThreadPerTask& operator=(const ThreadPerTask&) = delete;
  const penstock_workers* table() const { return &table_; }
  uint64_t n_tasks() const { return n_tasks_; }  // of all runs that were shared

 private:
  uint32_t count_;
  uint64_t n_tasks_ = 0;
  penstock_workers table_{};
};

}  // namespace penstock::test
