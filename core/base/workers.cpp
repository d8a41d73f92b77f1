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
  const std::lock_guard alone(running_);
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  stopping_ = false;
  try {
    while (threads_.size() + 1 < count) threads_.emplace_back([this] { serve(); });
  } catch (const std::system_error&) {
    // Fewer threads are slower, not wrong.
  }
  count_.store(static_cast<uint32_t>(threads_.size()) + 1, std::memory_order_relaxed);
}

void Workers::run(uint32_t n_tasks, Task task, void* context) noexcept {
  const std::unique_lock mine(running_, std::try_to_lock);
  if (!mine.owns_lock() || threads_.empty() || n_tasks < 2) {
    for (uint32_t i = 0; i < n_tasks; ++i) task(context, i);
    return;
  }
  const Job job{n_tasks, task, context};
  {
    const std::lock_guard lock(mutex_);
    job_ = job;
    next_.store(0, std::memory_order_relaxed);
    ++n_runs_;
  }
  wake_.notify_all();
  take_tasks(job);
  std::unique_lock lock(mutex_);
  job_ = Job{};  // who wakes only now has nothing to do
  idle_.wait(lock, [this] { return n_active_ == 0; });
}

void Workers::take_tasks(const Job& job) noexcept {
  for (uint32_t i = next_.fetch_add(1, std::memory_order_relaxed); i < job.n_tasks;
       i = next_.fetch_add(1, std::memory_order_relaxed))
    job.task(job.context, i);
}

void Workers::serve() noexcept {
  std::unique_lock lock(mutex_);
  uint64_t seen = 0;
  while (true) {
    wake_.wait(lock, [&] { return stopping_ || (job_.task != nullptr && n_runs_ != seen); });
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
