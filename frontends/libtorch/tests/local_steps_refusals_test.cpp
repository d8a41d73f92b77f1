// LocalSteps: broken values, and calls that must be refused with a message.

#include <limits>

#include "local_steps_testing.hpp"

namespace penstock::torch::testing::apart {
namespace {

// Moves every parameter by numbers of this rank.
void drift(nn::Sequential& model, std::uint64_t seed) {
  const ::torch::NoGradGuard without_history;
  ::torch::manual_seed(100 * seed + rank());
  for (at::Tensor& parameter : model->parameters()) parameter.add_(::torch::randn_like(parameter));
}

void break_parameters(nn::Sequential& model, float value) {
  const ::torch::NoGradGuard without_history;
  for (at::Tensor& parameter : model->parameters()) parameter.view({-1})[0].fill_(value);
}

struct LibtorchLocalStepsRefusals : ::testing::Test {
  nn::Sequential model = make_layers();
  optim::SGD sgd{model->parameters(), 0.0};

  LocalSteps wrap(const LocalStepsOptions& way) {
    return LocalSteps(sgd, model->named_parameters(), way);
  }
  void refused(const LocalStepsOptions& way, const std::string& part) {
    expect_error(PENSTOCK_INVALID_ARGUMENT, part, [&] { wrap(way); });
  }
};

TEST_F(LibtorchLocalStepsRefusals, ADriftThatIsNotFiniteLeavesNoTrace) {
  std::vector<std::vector<at::Tensor>> ends;
  for (const bool breaks : {true, false}) {
    nn::Sequential own = make_layers();
    optim::SGD inner(own->parameters(), 0.0);
    LocalSteps optimizer(inner, own->named_parameters(), {.every = 1, .scheme = kSparse});
    optimizer.anchors();
    drift(own, 1);
    optimizer.step();
    const auto before = anchors_of(optimizer);
    if (breaks) {
      drift(own, 2);
      if (rank() + 1 == size()) break_parameters(own, std::numeric_limits<float>::infinity());
      optimizer.step();
      EXPECT_TRUE(same_bits(anchors_of(optimizer), before)) << "an anchor moved";
      EXPECT_TRUE(same_bits(values_of(own), before)) << "a parameter is not its anchor";
    }
    drift(own, 3);
    optimizer.step();
    ends.push_back(anchors_of(optimizer));
  }
  EXPECT_TRUE(same_bits(ends[0], ends[1])) << "a residual or a momentum changed";
}

TEST_F(LibtorchLocalStepsRefusals, OnlyTheRankWithTheBrokenParameterSaysSoAndOnce) {
  LocalSteps optimizer = wrap({.every = 2, .scheme = kNone});
  ::testing::internal::CaptureStderr();
  for (int round = 0; round < 2; ++round) {
    optimizer.step();
    if (rank() == 0) break_parameters(model, std::numeric_limits<float>::quiet_NaN());
    optimizer.step();
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  const std::string sentence =
      "penstock warning: rank 0: parameter 0.weight (and 5 more) is not finite after step 2 of "
      "LocalSteps. On all ranks that exchange with it 6 parameters go back to their anchors";
  EXPECT_EQ(said.find(sentence) != std::string::npos, rank() == 0) << said;
  EXPECT_EQ(said.find("not finite after step"), said.rfind("not finite after step")) << said;
  EXPECT_TRUE(same_bits(values_of(model), values_of(make_layers())));
}

TEST_F(LibtorchLocalStepsRefusals, WrongArgumentsAreRefusedInTheWordsOfPython) {
  refused({}, "every is 0, expected a whole number from 1 on: the number of the optimizer's steps");
  refused({.every = 12, .fragments = 3, .delay = 4},
          "delay is 4, expected fewer than every / fragments = 12 / 3 steps: an exchange must land "
          "before the next one starts; lower delay to 3 or less, or raise every");
  refused({.every = 2, .delay = -1}, "delay is -1, expected a whole number from 0 on");
  refused({.every = 2, .fragments = 0}, "fragments is 0, expected a whole number from 1 on");
  refused({.every = 12, .fragments = 5},
          "fragments is 5, and the optimizer's parameters form 4 layers (0, 2, 4, 6)");
  refused({.every = 2, .fragments = 3}, "fragments is 3 and every is 2, expected at most one");
  refused({.every = 2, .mix = 1.0}, "mix is 1, expected a number from 0 to below 1");
  refused({.every = 2, .mix = std::numeric_limits<double>::quiet_NaN()}, "mix is nan");
  refused({.every = 2, .outer = OuterStep{.lr = 0}}, "the outer lr is 0, expected a number above");
  refused({.every = 2, .outer = OuterStep{.lr = std::numeric_limits<double>::infinity()}},
          "the outer lr is inf");
  refused({.every = 2, .outer = OuterStep{.momentum = 1.0}}, "the outer momentum is 1, expected");
  refused({.every = 2, .scheme = "nowhere.toml"}, "scheme is the path nowhere.toml");
  NamedTensors none;
  expect_error(PENSTOCK_INVALID_ARGUMENT, "one or more model parameters were not named",
               [&] { LocalSteps(sgd, none, {.every = 2}); });
  optim::SGD empty(std::vector<at::Tensor>{}, 0.1);
  expect_error(PENSTOCK_INVALID_ARGUMENT, "has no parameters, so LocalSteps has nothing",
               [&] { LocalSteps(empty, none, {.every = 2}); });
}

TEST_F(LibtorchLocalStepsRefusals, OneExchangeForEachParameter) {
  const auto each_step = [&] { return DistributedOptimizer(sgd, model->named_parameters()); };
  {
    LocalSteps optimizer = wrap({.every = 3});
    refused({.every = 3}, "LocalSteps exchanges these parameters already, and another LocalSteps");
    expect_error(PENSTOCK_INVALID_ARGUMENT, "a DistributedOptimizer would exchange them too",
                 [&] { each_step(); });
    optimizer.close();
    wrap({.every = 3});  // free again
  }
  {
    const DistributedOptimizer gradients = each_step();
    refused({.every = 3}, "averaged in every step already, by a DistributedOptimizer");
  }
  wrap({.every = 3});
}

TEST_F(LibtorchLocalStepsRefusals, CallsAtTheWrongMoment) {
  LocalSteps optimizer = wrap({.every = 3, .scheme = kNone});
  expect_error(PENSTOCK_INVALID_ARGUMENT, "momentum can neither begin nor end",
               [&] { optimizer.set_outer(std::nullopt); });
  optimizer.step();
  sgd.add_param_group({std::vector<at::Tensor>{::torch::ones({2}).requires_grad_()}});
  expect_error(PENSTOCK_INVALID_ARGUMENT, "LocalSteps takes no further parameter groups",
               [&] { optimizer.step(); });
  optimizer.close();
  optimizer.close();  // no harm
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { optimizer.step(); }, [&] { optimizer.synchronize(); },
           [&] { optimizer.save_state(); }, [&] { optimizer.set_outer(OuterStep{}); }})
    expect_error(PENSTOCK_INVALID_ARGUMENT, "by close() or penstock::torch::shutdown()", call);
}

TEST_F(LibtorchLocalStepsRefusals, TwoMomentaCountTwice) {
  expect_error(PENSTOCK_FAILED_PRECONDITION, "momentum",
               [&] { wrap({.every = 2, .scheme = kDgc}); });
  LocalSteps optimizer = wrap({.every = 2, .outer = std::nullopt, .scheme = kDgc});
  optimizer.step();
  optimizer.step();
  EXPECT_EQ(optimizer.counters().steps, 1u);
}

TEST_F(LibtorchLocalStepsRefusals, ParametersThatDifferAtTheFirstStepAreNamed) {
  if (size() == 1) GTEST_SKIP() << "needs two ranks";
  if (rank() == 1) {
    const ::torch::NoGradGuard without_history;
    model->named_parameters()["4.weight"].add_(1.0);
  }
  LocalSteps optimizer = wrap({.every = 1, .scheme = kNone});
  expect_error(PENSTOCK_MISMATCH, "parameter 4.weight differs between ranks at the first step",
               [&] { optimizer.step(); });
  expect_error(PENSTOCK_MISMATCH, "LocalSteps adds equal updates to every rank's anchors",
               [&] { optimizer.synchronize(); });
}

TEST_F(LibtorchLocalStepsRefusals, WhatRanksMustShareIsComparedAndNamedOnEveryRank) {
  if (size() == 1) GTEST_SKIP() << "needs two ranks";
  const bool is_last = rank() + 1 == size();
  expect_error(PENSTOCK_MISMATCH, "has \"every = 3\"",
               [&] { wrap({.every = is_last ? 3 : 2, .scheme = kNone}); });
  {
    LocalSteps optimizer = wrap({.every = 3, .scheme = kNone});
    for (int step = is_last ? 1 : 0; step < 2; ++step) optimizer.step();
    expect_error(PENSTOCK_MISMATCH, "has \"steps = 1\"", [&] { optimizer.synchronize(); });
  }
  LocalSteps optimizer = wrap({.every = 1, .scheme = kNone});
  if (is_last) optimizer.set_outer(OuterStep{.lr = 0.25});
  expect_error(PENSTOCK_MISMATCH, "has \"outer = lr 0.25, momentum 0.9, nesterov\"",
               [&] { optimizer.step(); });
}

TEST_F(LibtorchLocalStepsRefusals, AParameterElsewhere) {
  NamedTensors named;
  named.insert("far", ::torch::empty({2}, ::torch::kMeta).requires_grad_());
  optim::SGD far({named["far"]}, 0.1);
  expect_error(PENSTOCK_INVALID_ARGUMENT, "parameter far is on meta, expected the CPU or CUDA",
               [&] { LocalSteps(far, named, {.every = 2, .anchors_on_host = true}); });
}

}  // namespace
}  // namespace penstock::torch::testing::apart
