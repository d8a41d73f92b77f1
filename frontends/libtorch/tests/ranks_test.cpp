// Optimizers of subsets of the ranks, used side by side.

#include <vector>

#include "testing.hpp"

namespace penstock::torch::testing {
namespace {

// The even ranks or the odd ranks: the half that contains this rank.
Ranks own_half() {
  Ranks half;
  for (std::uint32_t one = rank() % 2; one < size(); one += 2) half.push_back(one);
  return half;
}

at::Tensor batch_of(std::uint32_t of_rank, std::int64_t step) {
  ::torch::manual_seed(1000 * of_rank + static_cast<std::uint64_t>(step));
  return ::torch::randn({kRowsPerRank, 6});
}

TEST(LibtorchRanks, EachHalfTrainsAsOneProcessWithItsBatchesDoes) {
  const Ranks half = own_half();
  nn::Sequential model = make_model(), alone = make_model();
  {
    const ::torch::NoGradGuard without_history;
    for (at::Tensor& parameter : model->parameters()) parameter.add_(0.01 * rank());
    for (at::Tensor& parameter : alone->parameters()) parameter.add_(0.01 * half.front());
  }
  optim::SGD sgd(model->parameters(), 0.1), other(alone->parameters(), 0.1);
  DistributedOptimizer optimizer(sgd, model->named_parameters(), {.ranks = half});
  broadcast_parameters(*model, half.front(), half);
  broadcast_optimizer_state(sgd, half.front(), half);
  for (std::int64_t step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    loss_of(model, batch_of(rank(), step)).backward();
    optimizer.step();
    std::vector<at::Tensor> rows;
    for (const std::uint32_t one : half) rows.push_back(batch_of(one, step));
    other.zero_grad();
    loss_of(alone, ::torch::cat(rows)).backward();
    other.step();
  }
  EXPECT_TRUE(close(model, alone));
  EXPECT_EQ(optimizer.counters().moved_bytes > 0, half.size() > 1);
  barrier();
}

TEST(LibtorchRanks, ARankThatIsNotAmongThemIsRefused) {
  if (size() < 2) GTEST_SKIP() << "needs two ranks";
  const Ranks other{rank() == 0 ? 1u : 0u};
  nn::Sequential model = make_model();
  optim::SGD sgd(model->parameters(), 0.1);
  expect_error(PENSTOCK_INVALID_ARGUMENT, "do not include this rank", [&] {
    const DistributedOptimizer optimizer(sgd, model->named_parameters(), {.ranks = other});
  });
  expect_error(PENSTOCK_INVALID_ARGUMENT, "a world rank in `ranks`",
               [&] { broadcast_parameters(*model, rank(), other); });
}

}  // namespace
}  // namespace penstock::torch::testing
