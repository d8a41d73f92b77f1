// Work that one thread does for another.
#include "core/base/task.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace penstock::task_test {
namespace {

TEST(Task, ThatRunsOutOfMemoryTellsWhoAskedForIt) {
  Task task([]() -> Status { throw std::bad_alloc(); });
  task.carry_out();
  EXPECT_EQ(task.wait().code(), Code::out_of_memory);
}

TEST(Task, ThatThrowsTellsWhoAskedForItWhatWasThrown) {
  Task task([]() -> Status { throw std::length_error("the cup is full"); });
  task.carry_out();
  EXPECT_EQ(task.wait().code(), Code::internal);
  EXPECT_EQ(task.wait().message(), "the cup is full");
}

}  // namespace
}  // namespace penstock::task_test
