// See workers.hpp.
#include <support/workers.hpp>
#include <thread>
#include <vector>

namespace penstock::test {

ThreadPerTask::ThreadPerTask(uint32_t count) : count_(count) {
  table_.struct_size = sizeof table_;
  table_.context = this;
  table_.count = [](void* context) { return static_cast<ThreadPerTask*>(context)->count_; };
  table_.run = [](void* context, uint32_t n_tasks, void (*task)(void*, uint32_t),
                  void* task_context) {
    static_cast<ThreadPerTask*>(context)->n_tasks_ += n_tasks;
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < n_tasks; ++i) threads.emplace_back(task, task_context, i);
    for (std::thread& thread : threads) thread.join();
  };
}

}  // namespace penstock::test
