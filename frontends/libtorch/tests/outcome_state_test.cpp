// States that are saved and loaded while the outcome of a step's results is open.

#include "outcome_testing.hpp"

namespace penstock::torch::testing {
namespace {

TEST(LibtorchOutcome, AStateSavedInAStepIsThatBeforeIt) {
  const Loop saving = [](Training& training) {
    for (std::int64_t step = 0; step < kLoop; ++step) {
      training.optimizer.zero_grad();
      const auto before = training.state();
      training.backward(step);
      EXPECT_EQ(training.state(), before) << "on their way";
      training.optimizer.synchronize();
      EXPECT_EQ(training.state(), before) << "there";
      const auto saved = training.optimizer.save_state();
      training.optimizer.step();
      EXPECT_NE(training.state(), before);
      // Loads that state and runs the step again.
      if (step != 3) continue;
      const auto after = training.state();
      training.optimizer.load_state(saved);
      EXPECT_EQ(training.state(), before);
      {
        const ::torch::NoGradGuard without_history;
        for (at::Tensor& parameter : training.model->parameters())
          parameter.add_(parameter.grad(), 0.1);
      }
      training.optimizer.zero_grad();
      training.backward(step);
      training.optimizer.step();
    }
  };
  for (const char* scheme : kSchemes) {
    SCOPED_TRACE(scheme);
    Training training(scheme);
    saving(training);
  }
}

TEST(LibtorchOutcome, AStateSavedAfterAClosureHasItsStep) {
  const auto evaluate = [](Training& training, std::int64_t step) {
    training.optimizer.zero_grad();
    at::Tensor loss = training.loss(step);
    loss.backward();
    return loss;
  };
  const Loop saving = [&](Training& training) {
    for (std::int64_t step = 0; step < kLoop; ++step) {
      const auto before = training.state();
      training.optimizer.step([&] {
        at::Tensor loss = evaluate(training, step);
        EXPECT_EQ(training.state(), before);
        return loss;
      });
      EXPECT_NE(training.state(), before);
    }
  };
  expect_equal_ends(saving, plain, kLoop, 0);
}

TEST(LibtorchOutcome, LoadingDropsAStepThatHasItsResults) {
  const Loop loading = [](Training& training) {
    train(training.optimizer, training.model, 0, 2);
    const auto saved = training.optimizer.save_state();
    training.optimizer.zero_grad();
    training.backward(50);
    training.optimizer.synchronize();
    EXPECT_THROW(training.optimizer.load_state({1, 2, 3}), Error);
    training.optimizer.load_state(saved);
    train(training.optimizer, training.model, 2, kLoop);
  };
  expect_equal_ends(loading, plain, kLoop, 0);
}

}  // namespace
}  // namespace penstock::torch::testing
