#include "core/base/workers.hpp"

#include <system_error>

namespace penstock {

Workers::Workers() {
  table_.struct_size = sizeof table_;
  table_.context = this;
  table_.count = [](void* context) noexcept { return static_cast<Workers*>(context)->count(); };
  table_.run = [](void* context, uint32_t n_tasks, Task task, void* task_context) noexcept {
    static_cast<Workers*>(context)->run(n_tasks, task, task_context);
  };
}

Workers::~Workers() {
  stop();
}

void Workers::resize(uint32_t count) {
  const Lock alone(running_);
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  {
    const Lock lock(mutex_);
    stopping_ = false;
  }
  try {
    while (threads_.size() + 1 < count) threads_.emplace_back([this] { serve(); });
  } catch (const std::system_error&) {
    // With fewer threads the work is slower, but not wrong.
  }
  count_.store(static_cast<uint32_t>(threads_.size()) + 1, std::memory_order_relaxed);
}

void Workers::run(uint32_t n_tasks, Task task, void* context) noexcept {
  const Job job{n_tasks, task, context};
  if (n_tasks < 2 || !running_.try_lock()) return take_all(job);
  const Lock mine(running_, std::adopt_lock);
  if (threads_.empty()) return take_all(job);
  {
    const Lock lock(mutex_);
    job_ = job;
    next_.store(0, std::memory_order_relaxed);
    ++n_runs_;
  }
  wake_.notify_all();
  take_tasks(job);
  Lock lock(mutex_);
  job_ = Job{};  // a thread that wakes late finds no work
  idle_.wait(mutex_, [this]() PENSTOCK_REQUIRES(mutex_) { return n_active_ == 0; });
}

void Workers::take_all(const Job& job) noexcept {
  for (uint32_t i = 0; i < job.n_tasks; ++i) job.task(job.context, i);
}

void Workers::take_tasks(const Job& job) noexcept {
  for (uint32_t i = next_.fetch_add(1, std::memory_order_relaxed); i < job.n_tasks;
       i = next_.fetch_add(1, std::memory_order_relaxed))
    job.task(job.context, i);
}

void Workers::serve() noexcept {
  Lock lock(mutex_);
  uint64_t seen = 0;
  while (true) {
    wake_.wait(mutex_, [&]() PENSTOCK_REQUIRES(mutex_) {
      return stopping_ || (job_.task != nullptr && n_runs_ != seen);
    });
    if (stopping_) return;
    seen = n_runs_;
    const Job job = job_;
    ++n_active_;
    lock.unlock();
    take_tasks(job);
    lock.lock();
    if (--n_active_ == 0) idle_.notify_one();
  }
}

}  // namespace penstock
