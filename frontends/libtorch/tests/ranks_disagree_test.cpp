// Ranks whose arguments do not agree: every rank receives the error message.

#include "testing.hpp"

namespace penstock::torch::testing {
namespace {

struct RanksDisagree : ::testing::Test {
  void SetUp() override {
    if (size() == 1) GTEST_SKIP() << "takes two ranks: test_libtorch.py starts them";
  }
};

TEST_F(RanksDisagree, ParametersThatDifferAreNamedBeforeTheFirstGradientLeaves) {
  nn::Sequential model = make_model();
  if (rank() == 1) {
    const ::torch::NoGradGuard without_history;
    model->parameters()[2].add_(1.0);
  }
  optim::SGD sgd(model->parameters(), 0.1);
  {
    DistributedOptimizer optimizer(sgd, model->named_parameters());
    expect_error(
        PENSTOCK_MISMATCH,
        "parameter 2.weight differs between ranks at the first step: rank 1 does not hold the "
        "values of rank 0 (1 of 4 parameters differ: 2.weight)",
        [&] { train(optimizer, model, 0, 1); });
    EXPECT_EQ(optimizer.counters().steps, 0u);
  }
  sgd.zero_grad();
  DistributedOptimizer allowed(sgd, model->named_parameters(), {.check_parameters = false});
  train(allowed, model, 0, 1);
  EXPECT_EQ(allowed.counters().steps, 1u);
}

TEST_F(RanksDisagree, ParametersThatPartLaterAreNamedWhereTheRunComparesAgain) {
  nn::Sequential model = make_model();
  optim::SGD sgd(model->parameters(), 0.1);
  DistributedOptimizer optimizer(sgd, model->named_parameters());
  train(optimizer, model, 0, 3);
  if (rank() == 1) {
    const ::torch::NoGradGuard without_history;
    model->parameters()[2].add_(1.0);
  }
  expect_error(PENSTOCK_MISMATCH,
               "parameter 2.weight differs between ranks after 3 steps: rank 1 does not hold the "
               "values of rank 0 (1 of 4 parameters differ: 2.weight)",
               [&] { train(optimizer, model, 3, 4); });
}

TEST_F(RanksDisagree, ShapesThatDifferAreRefusedOnEveryRank) {
  nn::Sequential model(nn::Linear(6, rank() == 0 ? 4 : 5));
  optim::SGD sgd(model->parameters(), 0.1);
  expect_error(PENSTOCK_MISMATCH, "0.weight",
               [&] { DistributedOptimizer(sgd, model->named_parameters()); });
}

TEST_F(RanksDisagree, MomentumOfOneRankAloneIsRefused) {
  nn::Sequential model = make_model();
  optim::SGD sgd(model->parameters(), optim::SGDOptions(0.1).momentum(rank() == 0 ? 0.9 : 0.0));
  EXPECT_THROW(DistributedOptimizer(sgd, model->named_parameters()), Error);
}

}  // namespace
}  // namespace penstock::torch::testing
