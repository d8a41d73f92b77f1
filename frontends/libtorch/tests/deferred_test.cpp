// Training with deferred updates must equal training with immediate updates, also if code reads the
// parameters in between.

#include <sstream>

#include "testing.hpp"

namespace penstock::torch::testing {
namespace {

constexpr char kDear[] = "[scheme]\nscheduler = \"dear\"\nroute = \"split\"\n";
constexpr std::int64_t kDeferredSteps = 5;

at::Tensor forward(nn::Sequential& model, DistributedOptimizer& optimizer, at::Tensor values) {
  for (auto& layer : *model) {
    optimizer.before_forward(*layer.ptr());
    values = layer.any_forward(values).get<at::Tensor>();
  }
  return values;
}

void train_told(nn::Sequential& model, DistributedOptimizer& optimizer, std::int64_t first,
                std::int64_t last) {
  for (std::int64_t step = first; step < last; ++step) {
    optimizer.zero_grad();
    forward(model, optimizer, own_batch(step)).square().mean().backward();
    optimizer.step();
  }
}

template <typename Optimizer, typename Settings>
void expect_the_training_of_updates_at_once(const Settings& settings) {
  nn::Sequential model = make_model(), plain = make_model();
  Optimizer inner(model->parameters(), settings), other(plain->parameters(), settings);
  DistributedOptimizer optimizer(inner, model->named_parameters(),
                                 {.scheme = kDear, .deferred = true});
  DistributedOptimizer at_once(other, plain->named_parameters());
  for (std::int64_t step = 0; step < kDeferredSteps; ++step) {
    train_told(model, optimizer, step, step + 1);
    train(at_once, plain, step, step + 1);
    // The promised update has the rate of its step.
    for (auto* one :
         {static_cast<optim::Optimizer*>(&inner), static_cast<optim::Optimizer*>(&other)})
      one->param_groups()[0].options().set_lr(0.05 / double(1 + step));
  }
  EXPECT_FALSE(same_bits(values_of(model), values_of(plain))) << "nothing was deferred";
  optimizer.flush();
  EXPECT_TRUE(same_bits(values_of(model), values_of(plain)));
  EXPECT_EQ(optimizer.counters().steps, std::uint64_t{kDeferredSteps});
}

TEST(LibtorchDeferred, TrainsToTheBitAsUpdatesAtOnceDo) {
  expect_the_training_of_updates_at_once<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9));
  expect_the_training_of_updates_at_once<optim::AdamW>(optim::AdamWOptions(0.01));
}

TEST(LibtorchDeferred, WhoeverLooksSeesTheUpdate) {
  std::vector<at::Tensor> expected;
  using Look = void (*)(nn::Sequential&, DistributedOptimizer&);
  const std::vector<Look> looks{
      [](nn::Sequential&, DistributedOptimizer& optimizer) { optimizer.flush(); },
      [](nn::Sequential&, DistributedOptimizer& optimizer) { optimizer.save_state(); },
      [](nn::Sequential& model, DistributedOptimizer&) { broadcast_parameters(*model); },
      [](nn::Sequential& model, DistributedOptimizer& optimizer) {
        optimizer.before_forward(*model);
      }};
  for (const Look look : looks) {
    nn::Sequential model = make_model();
    optim::SGD sgd(model->parameters(), 0.1);
    DistributedOptimizer optimizer(sgd, model->named_parameters(),
                                   {.scheme = kDear, .deferred = true});
    train_told(model, optimizer, 0, 3);
    look(model, optimizer);
    if (expected.empty()) expected = values_of(model);
    EXPECT_TRUE(same_bits(values_of(model), expected));
  }
  nn::Sequential model = make_model();
  optim::SGD sgd(model->parameters(), 0.1);
  {
    DistributedOptimizer optimizer(sgd, model->named_parameters(),
                                   {.scheme = kDear, .deferred = true});
    train_told(model, optimizer, 0, 3);
  }
  EXPECT_TRUE(same_bits(values_of(model), expected)) << "the end of the optimizer lost an update";
}

TEST(LibtorchDeferred, AForwardThatWasNotToldIsNoticed) {
  nn::Sequential model = make_model();
  optim::SGD sgd(model->parameters(), 0.1);
  DistributedOptimizer optimizer(sgd, model->named_parameters(),
                                 {.scheme = kDear, .deferred = true});
  train_told(model, optimizer, 0, 2);
  optimizer.zero_grad();
  try {
    loss_of(model, own_batch(2)).backward();
    ADD_FAILURE() << "a stale forward went unnoticed";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("before_forward(module)"), std::string::npos)
        << error.what();
  }
  optimizer.flush();
}

TEST(LibtorchDeferred, ModulesThatWereNeverToldAreUpdatedAtOnce) {
  nn::Sequential model = make_model(), plain = make_model();
  optim::SGD sgd(model->parameters(), 0.1), other(plain->parameters(), 0.1);
  DistributedOptimizer optimizer(sgd, model->named_parameters(),
                                 {.scheme = kDear, .deferred = true});
  DistributedOptimizer at_once(other, plain->named_parameters());
  train(optimizer, model, 0, kDeferredSteps);
  train(at_once, plain, 0, kDeferredSteps);
  EXPECT_TRUE(same_bits(values_of(model), values_of(plain)));
}

TEST(LibtorchDeferred, ClippingAndSkippedStepsWaitForResults) {
  nn::Sequential model = make_model(), plain = make_model();
  optim::SGD sgd(model->parameters(), 0.1), other(plain->parameters(), 0.1);
  DistributedOptimizer optimizer(sgd, model->named_parameters(),
                                 {.scheme = kDear, .deferred = true});
  DistributedOptimizer at_once(other, plain->named_parameters());
  for (std::int64_t step = 0; step < kDeferredSteps; ++step) {
    optimizer.zero_grad();
    forward(model, optimizer, own_batch(step)).square().mean().backward();
    at_once.zero_grad();
    loss_of(plain, own_batch(step)).backward();
    for (DistributedOptimizer* one : {&optimizer, &at_once}) {
      if (step == 2) {
        one->skip_step();
        continue;
      }
      one->synchronize();
      auto& own = one == &optimizer ? model : plain;
      nn::utils::clip_grad_norm_(own->parameters(), 0.1);
      one->step();
    }
  }
  optimizer.flush();
  EXPECT_TRUE(same_bits(values_of(model), values_of(plain)));
}

TEST(LibtorchDeferred, ASchedulerThatDefersNeedsTheOption) {
  nn::Sequential model = make_model();
  optim::SGD sgd(model->parameters(), 0.1);
  expect_error(PENSTOCK_FAILED_PRECONDITION, "leaves work for the next forward", [&] {
    const DistributedOptimizer optimizer(sgd, model->named_parameters(), {.scheme = kDear});
  });
}

}  // namespace
}  // namespace penstock::torch::testing
