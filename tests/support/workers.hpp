// Workers for tests. Each task of a run has a new thread, so that a sanitizer finds shared data.
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
