// The outcome of results: a backward whose results were thrown away leaves no trace, and results
// that an optimizer has used count.

#include <ATen/record_function.h>

#include <stdexcept>

#include "outcome_testing.hpp"

namespace penstock::torch::testing {
namespace {

// ---- thrown away ----

TEST(LibtorchOutcome, TheFirstBackwardOfSamLeavesNoTrace) {
  const auto second = [](Training& training, std::int64_t step) {
    training.climb(0.25);
    training.backward(100 + step);
    training.climb(-0.25);
    training.optimizer.step();
  };
  for (const auto& [name, throw_away] : kWaysToThrowAway) {
    SCOPED_TRACE(name);
    const Loop sam = [&second, away = throw_away](Training& training) {
      for (std::int64_t step = 0; step < kLoop; ++step) {
        training.optimizer.zero_grad();
        training.backward(step);
        training.optimizer.synchronize();
        away(training);
        second(training, step);
      }
    };
    const Loop without = [&second](Training& training) {
      for (std::int64_t step = 0; step < kLoop; ++step) {
        training.optimizer.zero_grad();
        second(training, step);
      }
    };
    expect_equal_ends(sam, without, kLoop, kLoop);
  }
}

TEST(LibtorchOutcome, AClosureThatThrowsAwayWhatWasThereBeforeForgetsIt) {
  const auto step = [](Training& training, std::int64_t number) {
    training.optimizer.step([&] {
      training.optimizer.zero_grad();
      at::Tensor loss = training.loss(number);
      loss.backward();
      return loss;
    });
  };
  const Loop twice = [&](Training& training) {
    for (std::int64_t number = 0; number < kLoop; ++number) {
      training.optimizer.zero_grad();
      training.backward(50 + number);
      training.optimizer.synchronize();
      step(training, number);
    }
  };
  const Loop once = [&](Training& training) {
    for (std::int64_t number = 0; number < kLoop; ++number) step(training, number);
  };
  expect_equal_ends(twice, once, kLoop, kLoop);
}

// The generator's backward fills the discriminator's gradients, from the first step on.
TEST(LibtorchOutcome, AGanTrainsAsWithADiscriminatorThatIsFrozenForTheGenerator) {
  const auto gan = [](bool freezes) {
    return [freezes](Training& discriminator) {
      ::torch::manual_seed(5);
      nn::Linear generator(3, 6);
      optim::SGD sgd(generator->parameters(), 0.1);
      DistributedOptimizer optimizer(sgd, generator->named_parameters());
      const auto require = [&](bool requires_grad) {
        for (at::Tensor& parameter : discriminator.model->parameters())
          parameter.set_requires_grad(requires_grad);
      };
      for (std::int64_t step = 0; step < kLoop; ++step) {
        const at::Tensor noise = own_batch(50 + step).narrow(1, 0, 3);
        optimizer.zero_grad();
        if (freezes) require(false);
        loss_of(discriminator.model, generator(noise)).neg().backward();
        optimizer.step();
        require(true);
        if (!freezes) discriminator.optimizer.synchronize();
        discriminator.optimizer.zero_grad();
        (discriminator.loss(step) - loss_of(discriminator.model, generator(noise).detach()))
            .backward();
        discriminator.optimizer.step();
      }
    };
  };
  expect_equal_ends(gan(false), gan(true), kLoop, kLoop);
}

// A loop throws one batch's results away and then goes on to the next batch or, with
// `steps_all_the_same`, calls step(), which finds no results.
void expect_one_batch_left_out(Throw throw_away, bool steps_all_the_same) {
  constexpr std::int64_t kBad = 2;
  const Loop guarded = [=](Training& training) {
    int left_out = 0;
    for (std::int64_t step = 0; step <= kLoop; ++step) {
      training.optimizer.zero_grad();
      (step == kBad ? training.loss(step) * 1e4 : training.loss(step)).backward();
      training.optimizer.synchronize();
      const bool is_spike = training.norm() > 100;
      if (is_spike) {
        ++left_out;
        throw_away(training);
      }
      if (!is_spike || steps_all_the_same) training.optimizer.step();
    }
    EXPECT_EQ(left_out, 1);
  };
  const Loop without = [](Training& training) {
    for (std::int64_t step = 0; step <= kLoop; ++step)
      if (step != kBad) train(training.optimizer, training.model, step, step + 1);
  };
  expect_equal_ends(guarded, without, kLoop, 1);
}

TEST(LibtorchOutcome, WhatTheProgramSaysOfTheEndOfAStepHolds) {
  for (const char* scheme : kSchemes) {
    Training one(scheme), expected(scheme);
    for (std::int64_t step = 0; step < kLoop; ++step) {
      // Gradients are taken out for use elsewhere: as if an optimizer had used them in some way
      // that leaves the parameters as they are.
      one.backward(step);
      one.optimizer.synchronize();
      one.optimizer.zero_grad();
      one.optimizer.step_end();
      expected.backward(step);
      expected.sgd.is_on = false;
      expected.optimizer.step();
      expected.optimizer.zero_grad();
      EXPECT_EQ(one.state(), expected.state()) << scheme << ", step " << step;
      one.backward(step + kLoop);
      one.optimizer.step_end(Outcome::forget);
      one.optimizer.zero_grad();
      EXPECT_EQ(one.state(), expected.state()) << scheme << ", after a step that is forgotten";
    }
    EXPECT_EQ(one.optimizer.counters().forgotten_steps, std::uint64_t(kLoop)) << scheme;
  }
}

TEST(LibtorchOutcome, ResidualsKeepTheirSizeWhenTheLossScaleChanges) {
  Training scaled(kTopK), plain(kTopK);
  for (std::int64_t step = 0; step < kLoop; ++step) {
    const float factor = std::ldexp(1.0f, int(step % 3) * 4);
    scaled.optimizer.set_grad_scale(factor);
    (scaled.loss(step) * factor).backward();
    scaled.optimizer.synchronize();
    for (at::Tensor& parameter : scaled.model->parameters())
      parameter.mutable_grad().mul_(1 / factor);
    scaled.optimizer.step();
    plain.backward(step);
    plain.optimizer.step();
    scaled.optimizer.zero_grad();
    plain.optimizer.zero_grad();
    for (std::size_t i = 0; i < plain.model->parameters().size(); ++i)
      EXPECT_TRUE(scaled.model->parameters()[i].equal(plain.model->parameters()[i])) << step;
  }
  expect_error(PENSTOCK_INVALID_ARGUMENT, "expected a finite factor above 0",
               [&] { scaled.optimizer.set_grad_scale(0); });
}

TEST(LibtorchOutcome, AGuardOfTheNormLeavesOneBatchOutAndNoOther) {
  for (const auto& [name, throw_away] : kWaysToThrowAway) {
    SCOPED_TRACE(name);
    expect_one_batch_left_out(throw_away, false);
    // A call of step() after skip_step() is a new step.
    if (name != "skip_step()") expect_one_batch_left_out(throw_away, true);
  }
}

// ---- used ----

TEST(LibtorchOutcome, WhatIsClippedOrScaledIsUsed) {
  const auto scale = [](Training& training, bool in_place) {
    for (at::Tensor& parameter : training.model->parameters()) {
      if (in_place)
        parameter.mutable_grad().mul_(0.5);
      else
        parameter.mutable_grad() = parameter.grad() * 0.5;
    }
  };
  const auto loop = [&](bool in_place) {
    return [&scale, in_place](Training& training) {
      for (std::int64_t step = 0; step < kLoop; ++step) {
        training.optimizer.zero_grad();
        training.backward(step);
        training.optimizer.synchronize();
        scale(training, in_place);
        training.optimizer.step();
      }
    };
  };
  expect_equal_ends(loop(true), loop(false), kLoop, 0);
}

// No element is above the threshold until residuals have grown, and clipping changes tensors.
TEST(LibtorchOutcome, ResultsThatCameAsZerosWereNotThrownAway) {
  Training training(
      "[scheme]\ncompressor = \"threshold\"\nmemory = \"residual\"\n"
      "[compressor.threshold]\nthreshold = 2.0\n");
  int steps = 0;
  for (double norm = 0; norm == 0; ++steps) {
    ASSERT_LT(steps, 200) << "residuals do not grow";
    training.optimizer.zero_grad();
    training.backward(0);
    training.optimizer.synchronize();
    norm = training.norm();
    for (at::Tensor& parameter : training.model->parameters()) parameter.mutable_grad().mul_(1);
    training.optimizer.step();
  }
  EXPECT_GT(steps, 1);
  EXPECT_EQ(training.optimizer.counters().forgotten_steps, 0u);
}

TEST(LibtorchOutcome, ResultsThatTheNextBackwardAddsToAreUsed) {
  const auto loop = [](bool has_a_step_that_changes_nothing) {
    return [has_a_step_that_changes_nothing](Training& training) {
      for (std::int64_t step = 0; step < kLoop; ++step) {
        training.optimizer.zero_grad();
        training.backward(50 + step);
        training.optimizer.synchronize();
        if (has_a_step_that_changes_nothing) {
          training.sgd.is_on = false;
          training.optimizer.step();
          training.sgd.is_on = true;
        }
        training.backward(step);
        training.optimizer.step();
      }
    };
  };
  expect_equal_ends(loop(false), loop(true), 2 * kLoop, 0);
}

TEST(LibtorchOutcome, EveryEvaluationInsideAStepIsUsed) {
  nn::Sequential model = make_model();
  optim::LBFGS inner(model->parameters(), optim::LBFGSOptions(0.5).max_iter(4));
  DistributedOptimizer optimizer(inner, model->named_parameters(), {.scheme = kTopK});
  std::uint64_t evaluations = 0;
  for (std::int64_t step = 0; step < 2; ++step)
    optimizer.step([&] {
      ++evaluations;
      optimizer.zero_grad();
      at::Tensor loss = loss_of(model, own_batch(step));
      loss.backward();
      return loss;
    });
  EXPECT_GT(evaluations, 2u);
  EXPECT_EQ(optimizer.counters().steps, evaluations);
  EXPECT_EQ(optimizer.counters().forgotten_steps, 0u);
  EXPECT_TRUE(same_bits_on_all_ranks(model));
}

TEST(LibtorchOutcome, AClosureThatThrowsUsesNothing) {
  const Loop throws = [](Training& training) {
    train(training.optimizer, training.model, 0, 2);
    const auto refuses = [&]() -> at::Tensor {
      training.optimizer.zero_grad();
      training.backward(50);
      training.optimizer.synchronize();
      throw std::runtime_error("a spike");
    };
    EXPECT_THROW(training.optimizer.step(refuses), std::runtime_error);
    train(training.optimizer, training.model, 2, kLoop);
  };
  expect_equal_ends(throws, plain, kLoop, 1);
}

// ---- the cost, and calls that must not be disturbed ----

// Counts the operations that torch ran, by name.
std::map<std::string, int> work_of(const std::function<void()>& action) {
  static std::map<std::string, int> seen;
  seen.clear();
  const auto note = [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
    ++seen[function.name()];
    return nullptr;
  };
  const at::CallbackHandle handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(note).scopes({at::RecordScope::FUNCTION}));
  action();
  at::removeCallback(handle);
  return seen;
}

TEST(LibtorchOutcome, APlainLoopReadsNoGradientOnceMore) {
  Training training(kTopK);
  nn::Sequential alone = make_model();
  optim::SGD sgd(alone->parameters(), 0.1);
  train(training.optimizer, training.model, 0, 2);
  const auto loop = [](auto& optimizer, nn::Sequential& model) {
    for (std::int64_t step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      loss_of(model, own_batch(step)).backward();
      optimizer.step();
    }
  };
  loop(sgd, alone);
  observed() = {};
  const auto ours = work_of([&] { loop(training.optimizer, training.model); });
  const auto plain_work = work_of([&] { loop(sgd, alone); });
  EXPECT_EQ(ours, plain_work);
  EXPECT_EQ(observed().looks, 0);
}

TEST(LibtorchOutcome, TorchsOwnGradLooksAtNothing) {
  const Loop penalised = [](Training& training) {
    for (std::int64_t step = 0; step < kLoop; ++step) {
      training.optimizer.zero_grad();
      training.backward(50 + step);
      training.optimizer.synchronize();
      observed() = {};
      const at::Tensor other = training.loss(step);
      ::torch::autograd::grad({other}, training.model->parameters());
      EXPECT_EQ(observed().looks, 0) << "the results are still to be thrown away";
      train(training.optimizer, training.model, step, step + 1);
    }
  };
  expect_equal_ends(penalised, plain, kLoop, kLoop);
}

}  // namespace
}  // namespace penstock::torch::testing
