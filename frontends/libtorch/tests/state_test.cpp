// The state of compression: a run that loads a state continues exactly like the run that saved it.

#include <sstream>

#include "archive_testing.hpp"
#include "testing.hpp"

namespace penstock::torch::testing {
namespace {

nn::Sequential model_of(const std::string& text) {
  nn::Sequential model = make_model();
  std::istringstream stream(text);
  ::torch::load(model, stream);
  return model;
}

TEST(LibtorchState, ARunThatLoadsItGoesOnWithTheSameBits) {
  nn::Sequential model = make_model();
  std::string weights;
  std::vector<std::uint8_t> state;
  {
    optim::SGD sgd(model->parameters(), 0.1);
    DistributedOptimizer optimizer(sgd, model->named_parameters(), {.scheme = kTopK});
    train(optimizer, model, 0, 3);
    weights = text_of(model);
    state = optimizer.save_state();
    train(optimizer, model, 3, 8);
  }
  EXPECT_FALSE(state.empty());
  nn::Sequential resumed = model_of(weights), forgetful = model_of(weights);
  optim::SGD sgd(resumed->parameters(), 0.1), other(forgetful->parameters(), 0.1);
  DistributedOptimizer optimizer(sgd, resumed->named_parameters(), {.scheme = kTopK});
  optimizer.load_state(state);
  train(optimizer, resumed, 3, 8);
  EXPECT_TRUE(same_bits(values_of(resumed), values_of(model)));
  // Without the state the residuals are missing, which shows that the state contains them.
  DistributedOptimizer without(other, forgetful->named_parameters(), {.scheme = kTopK});
  train(without, forgetful, 3, 8);
  EXPECT_FALSE(same_bits(values_of(forgetful), values_of(model)));
}

TEST(LibtorchState, LoadingInAStepDropsIt) {
  nn::Sequential model = make_model();
  optim::SGD sgd(model->parameters(), 0.1);
  DistributedOptimizer optimizer(sgd, model->named_parameters(), {.scheme = kTopK});
  train(optimizer, model, 0, 2);
  const auto state = optimizer.save_state();
  const std::string weights = text_of(model);
  train(optimizer, model, 2, 4);
  const auto wanted = values_of(model);

  nn::Sequential before = model_of(weights);
  {
    const ::torch::NoGradGuard without_history;
    for (std::size_t i = 0; i < before->parameters().size(); ++i)
      model->parameters()[i].copy_(before->parameters()[i]);
  }
  optimizer.zero_grad();
  loss_of(model, own_batch(9)).backward();
  optimizer.load_state(state);
  train(optimizer, model, 2, 4);
  EXPECT_TRUE(same_bits(values_of(model), wanted));
}

TEST(LibtorchState, AnArchiveOfTorchsKeepsIt) {
  nn::Sequential model = make_model();
  optim::SGD sgd(model->parameters(), 0.1);
  DistributedOptimizer optimizer(sgd, model->named_parameters(), {.scheme = kTopK});
  train(optimizer, model, 0, 3);
  expect_an_archive_keeps(
      model, optimizer, [&] { train(optimizer, model, 3, 6); }, "no tensor \"penstock\"");
}

TEST(LibtorchState, BytesThatAreNoStateAreRefused) {
  nn::Sequential model = make_model();
  optim::SGD sgd(model->parameters(), 0.1);
  DistributedOptimizer optimizer(sgd, model->named_parameters(), {.scheme = kTopK});
  EXPECT_THROW(optimizer.load_state({1, 2, 3}), Error);
  EXPECT_THROW(optimizer.load_state({}), Error);
}

}  // namespace
}  // namespace penstock::torch::testing
