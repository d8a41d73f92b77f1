// Work that one thread does for another.
#include "core/base/task.hpp"

#include <gtest/gtest.h>

namespace penstock::task_test {
namespace {

TEST(Task, ThatRunsOutOfMemoryTellsWhoAskedForIt) {
  Task task([]() -> Status { throw std::bad_alloc(); });
  task.carry_out();
  EXPECT_EQ(task.wait().code(), Code::out_of_memory);
}

}  // namespace
}  // namespace penstock::task_test
