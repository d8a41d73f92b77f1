// After the first steps neither oktopk nor the loopback transport below it allocates.
#include "oktopk_member.hpp"

#include <barrier>
#include <support/allocations.hpp>

namespace penstock::test {
namespace {

TEST(OkTopk, AllocatesNothingAfterTheFirstSteps) {
  constexpr uint32_t kSize = 3;
  const Shape shape{{3000}, {100}, 4, 64};
  std::barrier all_ranks(kSize);
  on_ranks(loopback(), kSize, [&](LoopbackRank& rank, uint32_t r) {
    Member member(rank, shape);
    std::vector<Entries> mine(1);
    for (uint32_t i = 0; i < 100; ++i) {
      mine[0].indices.push_back(30 * i + r * (i % 2));
      mine[0].values.push_back(static_cast<float>(i % 17 + r + 1));
    }
    uint64_t in_warm_up = 0;
    uint64_t afterwards = 0;
    for (uint64_t step = 0; step < 20; ++step) {
      // All ranks start a step together, because otherwise a fast rank needs room for the next step
      // before the last step is over.
      all_ranks.arrive_and_wait();
      const uint64_t before = thread_allocations;
      const Outcome outcome = member.step(step, mine);
      (step < 8 ? in_warm_up : afterwards) += thread_allocations - before;
      EXPECT_TRUE(outcome.ok()) << outcome.message;
    }
    EXPECT_GT(in_warm_up, 0u) << "the count does not see the plugins";
    EXPECT_EQ(afterwards, 0u);
  });
}

}  // namespace
}  // namespace penstock::test
