// Every task runs once, on any thread, and the caller sees the results.
#include "core/base/workers.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace penstock::workers_test {
namespace {

// Counts how often each task ran, in plain integers, so that the thread sanitizer finds two tasks
// at once.
struct Counts {
  explicit Counts(uint32_t n_tasks) : of_task(n_tasks, 0) {}
  static void task(void* context, uint32_t index) {
    ++static_cast<Counts*>(context)->of_task[index];
  }
  std::vector<int> of_task;
};

void run_counted(Workers& workers, uint32_t n_tasks) {
  Counts counts(n_tasks);
  workers.table()->run(workers.table()->context, n_tasks, Counts::task, &counts);
  EXPECT_EQ(counts.of_task, std::vector<int>(n_tasks, 1));
}

TEST(Workers, RunEveryTaskOnce) {
  for (const uint32_t count : {1u, 2u, 3u, 8u}) {
    Workers workers;
    workers.resize(count);
    EXPECT_EQ(workers.table()->count(workers.table()->context), count);
    for (const uint32_t n_tasks : {0u, 1u, 2u, 7u, 100u}) run_counted(workers, n_tasks);
  }
}

TEST(Workers, ShareTheTasksOfOneRun) {
  Workers workers;
  workers.resize(2);
  // Two tasks wait for each other, so the test ends only if two threads run them.
  std::atomic<int> arrived{0};
  workers.run(
      2,
      [](void* context, uint32_t) {
        auto& here = *static_cast<std::atomic<int>*>(context);
        here.fetch_add(1);
        while (here.load() < 2) std::this_thread::yield();
      },
      &arrived);
  EXPECT_EQ(arrived.load(), 2);
}

TEST(Workers, OneRunAfterTheOtherMixesNothingUp) {
  Workers workers;
  workers.resize(4);
  for (int i = 0; i < 2000; ++i) run_counted(workers, 3 + static_cast<uint32_t>(i) % 5);
}

TEST(Workers, SeveralCallersAtOnceEachGetAllOfTheirs) {
  Workers workers;
  workers.resize(3);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&] {
      for (int i = 0; i < 500; ++i) run_counted(workers, 6);
    });
  for (std::thread& caller : callers) caller.join();
}

TEST(Workers, ResizeAndStopLeaveACallerThatWorksAlone) {
  Workers workers;
  workers.resize(3);
  run_counted(workers, 9);
  workers.stop();
  EXPECT_EQ(workers.count(), 1u);
  run_counted(workers, 9);
  workers.resize(2);
  run_counted(workers, 9);
}

}  // namespace
}  // namespace penstock::workers_test
