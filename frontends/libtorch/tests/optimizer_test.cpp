// Training with DistributedOptimizer against a single process that sees the whole batch.

#include <vector>

#include "testing.hpp"

namespace penstock::torch::testing {
namespace {

constexpr std::int64_t kSteps = 5;

std::unique_ptr<optim::Optimizer> make_sgd(const nn::Sequential& model) {
  return std::make_unique<optim::SGD>(model->parameters(), optim::SGDOptions(0.1).momentum(0.9));
}
std::unique_ptr<optim::Optimizer> make_adam(const nn::Sequential& model) {
  return std::make_unique<optim::Adam>(model->parameters(), optim::AdamOptions(0.01));
}
std::unique_ptr<optim::Optimizer> make_adagrad(const nn::Sequential& model) {
  return std::make_unique<optim::Adagrad>(model->parameters(), optim::AdagradOptions(0.01));
}

TEST(LibtorchOptimizer, TrainsAsOneProcessWithTheWholeBatchDoes) {
  for (const auto make : {make_sgd, make_adam, make_adagrad}) {
    nn::Sequential model = make_model(), alone = make_model();
    const auto inner = make(model), other = make(alone);
    DistributedOptimizer optimizer(*inner, model->named_parameters());
    train(optimizer, model, 0, kSteps);
    train_alone(*other, alone, kSteps);
    EXPECT_TRUE(close(model, alone));
    EXPECT_TRUE(same_bits_on_all_ranks(model));
    const Counters counters = optimizer.counters();
    EXPECT_EQ(counters.steps, std::uint64_t{kSteps});
    EXPECT_EQ(counters.moved_bytes > 0, size() > 1);
    EXPECT_NE(optimizer.report().find("\"0.weight\""), std::string::npos);
  }
}

TEST(LibtorchOptimizer, ASumIsThatOfAllRanks) {
  nn::Sequential model = make_model(), alone = make_model();
  optim::SGD sgd(model->parameters(), 0.1 / size()), other(alone->parameters(), 0.1);
  DistributedOptimizer optimizer(sgd, model->named_parameters(), {.sum = true});
  train(optimizer, model, 0, kSteps);
  train_alone(other, alone, kSteps);
  EXPECT_TRUE(close(model, alone));
}

TEST(LibtorchOptimizer, AParameterWithoutGradientOnOneRankTakesPartWithZeros) {
  nn::Sequential model = make_model();
  optim::SGD sgd(model->parameters(), 0.1);
  DistributedOptimizer optimizer(sgd, model->named_parameters());
  for (std::int64_t step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    // Rank 0 never reaches the first layer.
    at::Tensor input = rank() == 0 ? ::torch::ones({kRowsPerRank, 8})
                                   : model[0]->as<nn::Linear>()->forward(own_batch(step));
    model[2]->as<nn::Linear>()->forward(input).square().mean().backward();
    optimizer.synchronize();
    EXPECT_TRUE(model->parameters()[0].grad().defined());
    EXPECT_EQ(model->parameters()[0].grad().any().item<bool>(), size() > 1);
    optimizer.step();
  }
  EXPECT_TRUE(same_bits_on_all_ranks(model));
}

TEST(LibtorchOptimizer, FrozenParametersTakeNoPart) {
  nn::Sequential model = make_model();
  model->parameters()[0].set_requires_grad(false);
  optim::SGD sgd(model->parameters(), 0.1);
  const at::Tensor before = model->parameters()[0].clone();
  DistributedOptimizer optimizer(sgd, model->named_parameters());
  train(optimizer, model, 0, 2);
  EXPECT_TRUE(before.equal(model->parameters()[0]));
  EXPECT_EQ(optimizer.report().find("\"0.weight\""), std::string::npos);
  model->parameters()[0].set_requires_grad(true);
  expect_error(PENSTOCK_INVALID_ARGUMENT, "parameter 0.weight did not require gradients when",
               [&] { train(optimizer, model, 2, 3); });
}

TEST(LibtorchOptimizer, TwoOptimizersOfOneProgramDoNotMeet) {
  nn::Sequential first = make_model(), second = make_model(), alone = make_model();
  optim::SGD one(first->parameters(), 0.1), two(second->parameters(), 0.05);
  DistributedOptimizer dense(one, first->named_parameters());
  DistributedOptimizer sparse(two, second->named_parameters(), {.scheme = kTopK});
  for (std::int64_t step = 0; step < kSteps; ++step) {
    train(sparse, second, step, step + 1);
    train(dense, first, step, step + 1);
  }
  optim::SGD other(alone->parameters(), 0.1);
  train_alone(other, alone, kSteps);
  EXPECT_TRUE(close(first, alone));
  EXPECT_FALSE(close(second, alone));
  EXPECT_TRUE(same_bits_on_all_ranks(second));
  EXPECT_EQ(sparse.counters().steps, std::uint64_t{kSteps});
}

TEST(LibtorchOptimizer, GradientsAreWaitedForAfterAClosure) {
  nn::Sequential model = make_model(), plain = make_model();
  optim::SGD sgd(model->parameters(), 0.1), other(plain->parameters(), 0.1);
  DistributedOptimizer optimizer(sgd, model->named_parameters());
  DistributedOptimizer second(other, plain->named_parameters());
  for (std::int64_t step = 0; step < kSteps; ++step) {
    at::Tensor inside;
    const at::Tensor loss = optimizer.step([&] {
      optimizer.zero_grad();
      inside = loss_of(model, own_batch(step));
      inside.backward();
      return inside;
    });
    EXPECT_TRUE(loss.equal(inside));
  }
  train(second, plain, 0, kSteps);
  EXPECT_TRUE(same_bits(values_of(model), values_of(plain)));
  EXPECT_EQ(optimizer.counters().steps, std::uint64_t{kSteps});
}

TEST(LibtorchOptimizer, AnOptimizerMayCallItsClosureSeveralTimes) {
  nn::Sequential model = make_model(), alone = make_model();
  optim::LBFGS inner(model->parameters(), optim::LBFGSOptions(0.5).max_iter(4));
  optim::LBFGS other(alone->parameters(), optim::LBFGSOptions(0.5).max_iter(4));
  DistributedOptimizer optimizer(inner, model->named_parameters());
  optimizer.step([&] {
    optimizer.zero_grad();
    at::Tensor loss = loss_of(model, own_batch(0));
    loss.backward();
    return loss;
  });
  other.step([&] {
    other.zero_grad();
    at::Tensor loss = loss_of(alone, whole_batch(0));
    loss.backward();
    return loss;
  });
  EXPECT_FALSE(same_bits(values_of(model), values_of(make_model())));
  EXPECT_TRUE(same_bits_on_all_ranks(model));
  EXPECT_TRUE(size() > 1 || close(model, alone));
}

TEST(LibtorchOptimizer, SynchronizedGradientsMayBeClipped) {
  nn::Sequential model = make_model(), alone = make_model();
  optim::SGD sgd(model->parameters(), 0.1), other(alone->parameters(), 0.1);
  DistributedOptimizer optimizer(sgd, model->named_parameters());
  for (std::int64_t step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    loss_of(model, own_batch(step)).backward();
    optimizer.synchronize();
    nn::utils::clip_grad_norm_(model->parameters(), 0.01);
    optimizer.step();
    other.zero_grad();
    loss_of(alone, whole_batch(step)).backward();
    nn::utils::clip_grad_norm_(alone->parameters(), 0.01);
    other.step();
  }
  EXPECT_TRUE(close(model, alone));
}

// The residuals hold nothing of the skipped step: the whole gradient was sent, and the next step
// sends only its own gradient.
TEST(LibtorchOptimizer, ASkippedStepKeepsParametersAndForgetsWhatWasSent) {
  nn::Sequential model = make_model();
  optim::SGD sgd(model->parameters(), 0.1);
  const std::string all =
      "[scheme]\ncompressor = \"topk\"\nmemory = \"residual\"\n"
      "[compressor.topk]\ndensity = 1.0\n";
  DistributedOptimizer optimizer(sgd, model->named_parameters(), {.scheme = all});
  const auto before = values_of(model);
  loss_of(model, own_batch(0)).backward();
  optimizer.synchronize();
  const at::Tensor once = model->parameters()[0].grad().clone();
  optimizer.skip_step();
  EXPECT_TRUE(same_bits(before, values_of(model)));
  optimizer.zero_grad();
  loss_of(model, own_batch(0)).backward();
  optimizer.synchronize();
  EXPECT_TRUE(model->parameters()[0].grad().equal(once));
  optimizer.step();
  EXPECT_FALSE(same_bits(before, values_of(model)));
}

TEST(LibtorchOptimizer, AGradientThatIsNotContiguousComesBackInItsPlace) {
  at::Tensor columns = ::torch::ones({4, 3}).t().requires_grad_();
  ASSERT_FALSE(columns.is_contiguous());
  optim::SGD sgd({columns}, 0.1);
  NamedTensors named;
  named.insert("columns", columns);
  DistributedOptimizer optimizer(sgd, named);
  at::Tensor weights = ::torch::arange(12, ::torch::kFloat).view({3, 4});
  (columns * weights * (1.0 + rank())).sum().backward();
  const at::Tensor gradient = columns.grad();
  EXPECT_FALSE(gradient.is_contiguous());
  optimizer.synchronize();
  EXPECT_TRUE(gradient.is_same(columns.grad()));
  EXPECT_TRUE(gradient.allclose(weights * ((1.0 + size()) / 2)));
}

TEST(LibtorchOptimizer, WhatSchedulersChangeIsToldWhenAStepBegins) {
  nn::Sequential model = make_model();
  optim::SGD sgd(model->parameters(), 0.5);
  observed() = {};
  DistributedOptimizer optimizer(sgd, model->named_parameters());
  EXPECT_EQ(observed().learning_rates, std::vector<double>(4, 0.5));
  optim::StepLR schedule(sgd, 2, 0.5);
  for (std::int64_t step = 0; step < 4; ++step) {
    train(optimizer, model, step, step + 1);
    schedule.step();
  }
  EXPECT_EQ(observed().learning_rates, (std::vector<double>{.5, .5, .5, .5, .25, .25, .25, .25}));
  EXPECT_EQ(observed().momentum, 0);
  static_cast<optim::SGDOptions&>(sgd.param_groups()[0].options()).momentum(0.9);
  train(optimizer, model, 4, 6);
  EXPECT_EQ(observed().momentum, 1);
}

TEST(LibtorchOptimizer, GradientsLeaveWhileBackwardRunsOnceTheRanksAgree) {
  nn::Sequential model = make_model();
  optim::SGD sgd(model->parameters(), 0.1);
  DistributedOptimizer optimizer(sgd, model->named_parameters());
  for (const int ready_after_backward : {0, 4}) {
    optimizer.zero_grad();
    observed() = {};
    loss_of(model, own_batch(0)).backward();
    EXPECT_EQ(observed().ready, ready_after_backward);
    optimizer.step();
    EXPECT_EQ(observed().ready, 4);
  }
}

TEST(LibtorchOptimizer, APartOfTheParametersAndAMovedOptimizerTrainToo) {
  nn::Sequential model = make_model();
  optim::SGD sgd(model[2]->parameters(), 0.1);
  DistributedOptimizer made(sgd, model->named_parameters());
  DistributedOptimizer optimizer(std::move(made));
  const auto before = values_of(model);
  train(optimizer, model, 0, 2);
  const auto after = values_of(model);
  EXPECT_TRUE(before[0].equal(after[0]));
  EXPECT_FALSE(before[2].equal(after[2]));
}

}  // namespace
}  // namespace penstock::torch::testing
