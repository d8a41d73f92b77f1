// The output of a rank in tests that all ranks run.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>

namespace penstock::test {

class FailuresOnly : public ::testing::EmptyTestEventListener {
 public:
  explicit FailuresOnly(uint32_t rank) : rank_(rank) {}
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.failed())
      std::fprintf(stderr, "rank %u: %s:%d: %s\n", rank_, result.file_name(), result.line_number(),
                   result.summary());
  }

 private:
  uint32_t rank_;
};

// Rank 0 prints as usual. The other ranks print only failures.
inline void print_as_rank(uint32_t rank) {
  if (rank == 0) return;
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new FailuresOnly(rank));
}

}  // namespace penstock::test
