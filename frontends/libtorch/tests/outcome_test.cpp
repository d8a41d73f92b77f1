// What became of results: a backward whose results were thrown away leaves no trace, and what an
// optimizer has used counts. Each loop is compared, parameters and saved state bit for bit, with
// one in which that backward did not reach the exchange.

#include <ATen/record_function.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <map>
#include <stdexcept>

#include "testing.hpp"

namespace penstock::torch::testing {
namespace {

constexpr char kPowerSgd[] =
    "[scheme]\ncompressor = \"powersgd\"\nmemory = \"residual\"\n"
    "[compressor.powersgd]\nrank = 1\nminimum_compression_rate = 1.0\n";
constexpr char kEfSign[] = "[scheme]\ncompressor = \"efsign\"\nmemory = \"residual\"\n";
constexpr char kRandomK[] =
    "[scheme]\ncompressor = \"randomk\"\nmemory = \"residual\"\n"
    "[compressor.randomk]\ndensity = 0.25\n";
constexpr const char* kSchemes[] = {kTopK, kDgc, kPowerSgd, kEfSign, kRandomK};
constexpr std::int64_t kLoop = 6;

// Leaves parameters as they are while it is off.
class Switched final : public optim::SGD {
 public:
  using SGD::SGD;
  at::Tensor step(LossClosure closure = nullptr) override {
    return is_on ? SGD::step(closure) : at::Tensor();
  }
  bool is_on = true;
};

// A model in training, with an optimizer of its own.
struct Training {
  explicit Training(const char* scheme)
      : optimizer(sgd, model->named_parameters(), {.scheme = scheme}) {}

  at::Tensor loss(std::int64_t step) { return loss_of(model, own_batch(step)); }
  void backward(std::int64_t step) { loss(step).backward(); }
  // Moves the weights away and back again, as SAM does.
  void climb(float by) {
    const ::torch::NoGradGuard without_history;
    for (at::Tensor& parameter : model->parameters()) parameter.add_(by);
  }
  double norm() {
    double squares = 0;
    for (const at::Tensor& parameter : model->parameters())
      squares += parameter.grad().square().sum().item<double>();
    return std::sqrt(squares);
  }
  // Saved, without the name of the set and the checksum, which differ from optimizer to optimizer.
  std::vector<std::uint8_t> state() {
    const std::vector<std::uint8_t> saved = optimizer.save_state();
    std::uint64_t name = 0;
    std::memcpy(&name, saved.data() + 8, sizeof name);
    return {saved.begin() + 16 + std::ptrdiff_t(name), saved.end() - 8};
  }

  nn::Sequential model = make_model();
  Switched sgd{model->parameters(), 0.1};
  DistributedOptimizer optimizer;
};

using Loop = std::function<void(Training&)>;

// Both begin alike; `steps` of them count in each.
void expect_equal_ends(const Loop& one, const Loop& other, std::uint64_t steps,
                       std::uint64_t forgotten) {
  for (const char* scheme : kSchemes) {
    SCOPED_TRACE(scheme);
    Training ours(scheme), theirs(scheme);
    one(ours);
    other(theirs);
    EXPECT_TRUE(same_bits(values_of(ours.model), values_of(theirs.model)));
    EXPECT_FALSE(same_bits(values_of(ours.model), values_of(make_model())));
    EXPECT_EQ(ours.state(), theirs.state());
    EXPECT_EQ(ours.optimizer.counters().steps, steps);
    EXPECT_EQ(theirs.optimizer.counters().steps, steps);
    // The last step thrown away ends with the next backward.
    EXPECT_EQ(ours.optimizer.counters().forgotten_steps, forgotten);
    EXPECT_TRUE(same_bits_on_all_ranks(ours.model));
  }
}

void plain(Training& training) {
  train(training.optimizer, training.model, 0, kLoop);
}

// ---- thrown away ----

using Throw = void (*)(Training&);
const std::map<std::string, Throw> kWaysToThrowAway{
    {"zero_grad()", [](Training& one) { one.optimizer.zero_grad(); }},
    {"zero_grad(false)", [](Training& one) { one.optimizer.zero_grad(false); }},
    {"the module's", [](Training& one) { one.model->zero_grad(); }},
    {"in place",
     [](Training& one) {
       for (at::Tensor& parameter : one.model->parameters()) parameter.mutable_grad().zero_();
     }},
    {"by a factor",
     [](Training& one) {
       for (at::Tensor& parameter : one.model->parameters()) parameter.mutable_grad().mul_(0);
     }},
    {"by other tensors",
     [](Training& one) {
       for (at::Tensor& parameter : one.model->parameters())
         parameter.mutable_grad() = ::torch::zeros_like(parameter);
     }},
    {"skip_step()", [](Training& one) {
       one.optimizer.skip_step();
       one.optimizer.zero_grad();
     }}};

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

TEST(LibtorchOutcome, AGuardOfTheNormLeavesOneBatchOutAndNoOther) {
  constexpr std::int64_t kBad = 2;
  for (const bool steps_all_the_same : {false, true}) {
    const Loop guarded = [&](Training& training) {
      int left_out = 0;
      for (std::int64_t step = 0; step <= kLoop; ++step) {
        training.optimizer.zero_grad();
        (step == kBad ? training.loss(step) * 1e4 : training.loss(step)).backward();
        training.optimizer.synchronize();
        const bool is_spike = training.norm() > 100;
        if (is_spike) {
          ++left_out;
          training.optimizer.zero_grad();
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

// Nothing is above the threshold until residuals have grown, and clipping changes tensors.
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

// ---- saved in between ----

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
      // That state, and the same step again.
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

// ---- what it costs, and what it does not disturb ----

// What torch ran, by name.
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
  told() = {};
  const auto ours = work_of([&] { loop(training.optimizer, training.model); });
  const auto plain_work = work_of([&] { loop(sgd, alone); });
  EXPECT_EQ(ours, plain_work);
  EXPECT_EQ(told().looks, 0);
}

TEST(LibtorchOutcome, TorchsOwnGradLooksAtNothing) {
  const Loop penalised = [](Training& training) {
    for (std::int64_t step = 0; step < kLoop; ++step) {
      training.optimizer.zero_grad();
      training.backward(50 + step);
      training.optimizer.synchronize();
      told() = {};
      const at::Tensor other = training.loss(step);
      ::torch::autograd::grad({other}, training.model->parameters());
      EXPECT_EQ(told().looks, 0) << "the results are still to be thrown away";
      train(training.optimizer, training.model, step, step + 1);
    }
  };
  expect_equal_ends(penalised, plain, kLoop, kLoop);
}

}  // namespace
}  // namespace penstock::torch::testing
