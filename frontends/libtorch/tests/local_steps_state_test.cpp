// The state of LocalSteps: saved after any step and restored, a run continues bit for bit.

#include <sstream>

#include "archive_testing.hpp"
#include "local_steps_testing.hpp"

namespace penstock::torch::testing::apart {
namespace {

void load_into(nn::Sequential& model, const std::string& text) {
  std::istringstream stream(text);
  ::torch::load(model, stream);
}

// A run's model and state after a step, and its parameters 15 steps later.
struct Saved {
  std::string model, inner;
  std::vector<std::uint8_t> rounds;
  std::vector<at::Tensor> ends;
};

Saved run_and_save(const LocalStepsOptions& way, std::int64_t at) {
  nn::Sequential model = make_layers();
  optim::AdamW adam(model->parameters(), optim::AdamWOptions(0.01));
  LocalSteps optimizer(adam, model->named_parameters(), way);
  train(model, optimizer, 0, at);
  std::ostringstream inner;
  ::torch::save(adam, inner);
  Saved saved{text_of(model), inner.str(), optimizer.save_state(), {}};
  train(model, optimizer, at, at + 15);
  saved.ends = values_of(model);
  return saved;
}

// The end of a run that loads this state.
std::vector<at::Tensor> resumed(const LocalStepsOptions& way, std::int64_t at, const Saved& saved) {
  nn::Sequential model = make_layers();
  optim::AdamW adam(model->parameters(), optim::AdamWOptions(0.01));
  LocalSteps optimizer(adam, model->named_parameters(), way);
  train(model, optimizer, 50, 55);  // another past, with an exchange under way
  load_into(model, saved.model);
  std::istringstream inner(saved.inner);
  adam.state().clear();
  ::torch::load(adam, inner);
  optimizer.load_state(saved.rounds);
  train(model, optimizer, at, at + 15);
  return values_of(model);
}

TEST(LibtorchLocalStepsState, ARunThatLoadsItGoesOnWithTheSameBits) {
  const LocalStepsOptions stream{
      .every = 12, .scheme = kSparse, .fragments = 3, .delay = 2, .mix = 0.5};
  const LocalStepsOptions plain{.every = 3, .scheme = kSparse};
  for (const auto& [way, at] : std::vector<std::pair<LocalStepsOptions, std::int64_t>>{
           {plain, 0}, {plain, 7}, {stream, 15}, {stream, 13}}) {
    const Saved saved = run_and_save(way, at);
    EXPECT_TRUE(same_bits(resumed(way, at, saved), saved.ends)) << "saved after step " << at;
  }
}

TEST(LibtorchLocalStepsState, AnArchiveOfTorchsKeepsIt) {
  const LocalStepsOptions way{
      .every = 6, .scheme = kSparse, .fragments = 2, .delay = 1, .mix = 0.5};
  nn::Sequential model = make_layers();
  optim::SGD sgd(model->parameters(), 0.1);
  LocalSteps optimizer(sgd, model->named_parameters(), way);
  train(model, optimizer, 0, 9);  // an exchange is under way
  expect_an_archive_keeps(
      model, optimizer, [&] { train(model, optimizer, 9, 20); },
      "no part \"penstock_local_steps\"");
}

TEST(LibtorchLocalStepsState, AStateOfOtherSettingsOrOfNothingIsRefusedBeforeAnythingChanges) {
  nn::Sequential model = make_layers();
  optim::SGD sgd(model->parameters(), 0.1);
  std::vector<std::uint8_t> of_four;
  {
    LocalSteps optimizer(sgd, model->named_parameters(), {.every = 4, .scheme = kNone});
    train(model, optimizer, 0, 2);
    of_four = optimizer.save_state();
  }
  const auto refused = [&](const LocalStepsOptions& way, const std::string& part) {
    LocalSteps optimizer(sgd, model->named_parameters(), way);
    expect_error(PENSTOCK_INVALID_ARGUMENT, part, [&] { optimizer.load_state(of_four); });
    EXPECT_NE(optimizer.report().find("\"steps\": 0,"), std::string::npos);
  };
  refused({.every = 5, .scheme = kNone}, "has every 4, expected 5");
  refused({.every = 4, .scheme = kNone, .fragments = 2}, "has fragments 1, expected 2");
  refused({.every = 4, .scheme = kNone, .delay = 1}, "has delay 0, expected 1");
  refused({.every = 4, .outer = std::nullopt, .scheme = kNone}, "has momentum yes, expected no");
  LocalSteps optimizer(sgd, model->named_parameters(), {.every = 4, .scheme = kNone});
  for (const auto& bytes : std::vector<std::vector<std::uint8_t>>{
           {}, {1, 2, 3}, {of_four.begin(), of_four.begin() + 100}})
    expect_error(PENSTOCK_INVALID_ARGUMENT, "bytes were not saved by LocalSteps",
                 [&] { optimizer.load_state(bytes); });
  optimizer.load_state(of_four);
  EXPECT_NE(optimizer.report().find("\"steps\": 2,"), std::string::npos);
}

TEST(LibtorchLocalStepsState, AStateOfAnotherModelIsRefused) {
  nn::Sequential one(nn::Linear(3, 2)), other(nn::Linear(3, 4)),
      third(nn::Tanh(), nn::Linear(3, 2));
  const auto state_of = [](nn::Sequential& model) {
    optim::SGD sgd(model->parameters(), 0.1);
    LocalSteps optimizer(sgd, model->named_parameters(), {.every = 4, .scheme = kNone});
    return optimizer.save_state();
  };
  const auto state = state_of(one);
  optim::SGD sgd(other->parameters(), 0.1), last(third->parameters(), 0.1);
  LocalSteps of_other(sgd, other->named_parameters(), {.every = 4, .scheme = kNone});
  expect_error(PENSTOCK_INVALID_ARGUMENT,
               "a tensor Float [2, 3] under the key \"anchor0\" for parameter 0.weight, expected a "
               "tensor Float [4, 3]",
               [&] { of_other.load_state(state); });
  LocalSteps of_third(last, third->named_parameters(), {.every = 4, .scheme = kNone});
  expect_error(PENSTOCK_INVALID_ARGUMENT,
               "has parameters 0.weight, 0.bias, expected 1.weight, 1.bias",
               [&] { of_third.load_state(state); });
}

}  // namespace
}  // namespace penstock::torch::testing::apart
