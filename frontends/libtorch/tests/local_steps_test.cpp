// LocalSteps: ranks train apart, and their exchange is the exchange of the papers.

#include <stdexcept>

#include "local_steps_testing.hpp"

namespace penstock::torch::testing::apart {
namespace {

std::vector<std::uint32_t> all_ranks() {
  std::vector<std::uint32_t> all(size());
  std::iota(all.begin(), all.end(), 0u);
  return all;
}

// The parameters of rank number `own` of the simulation, and the anchors.
void expect_simulated(nn::Sequential& model, LocalSteps& optimizer, const Simulation& expected,
                      std::size_t own) {
  float moved = 0;
  const auto first = make_layers()->named_parameters();
  for (const auto& item : optimizer.anchors()) {
    const std::string& name = item.key();
    const Floats anchor = floats_of(item.value());
    EXPECT_LE(largest_difference(anchor, expected.anchors.at(name)), 1e-6f) << name;
    EXPECT_LE(largest_difference(floats_of(model->named_parameters()[name]),
                                 floats_of(expected.models[own]->named_parameters()[name])),
              1e-6f)
        << name;
    moved = std::max(moved, largest_difference(anchor, floats_of(first[name])));
  }
  EXPECT_GT(moved, 0.002f) << "the anchors hardly moved, so the comparison says nothing";
}

TEST(LibtorchLocalSteps, ARoundOfOneStepEqualsAveragedGradients) {
  nn::Sequential model = make_model(), alone = make_model();
  optim::SGD sgd(model->parameters(), 0.1), other(alone->parameters(), 0.1);
  LocalSteps optimizer(sgd, model->named_parameters(),
                       {.every = 1, .outer = kAverage, .scheme = kNone});
  for (std::int64_t step = 0; step < 6; ++step) {
    optimizer.zero_grad();
    loss_of(model, own_batch(step)).backward();
    optimizer.step();
  }
  train_alone(other, alone, 6);
  EXPECT_TRUE(close(model, alone));
  EXPECT_TRUE(same_bits_on_all_ranks(model));
  EXPECT_EQ(optimizer.counters().steps, 6u);
}

struct Case {
  LocalStepsOptions way;
  std::int64_t steps;
};

TEST(LibtorchLocalSteps, EveryWayEqualsASimulationInPlainLoops) {
  const std::vector<Case> cases{
      {{.every = 10, .scheme = kNone}, 25},
      {{.every = 10, .scheme = kSparse}, 35},
      {{.every = 5, .outer = std::nullopt, .scheme = kNone}, 12},
      {{.every = 5, .outer = OuterStep{0.5, 0.8, false}, .scheme = kNone}, 22},
      {{.every = 12, .scheme = kNone, .fragments = 2, .delay = 2}, 29},
      {{.every = 12, .scheme = kSparse, .fragments = 2, .delay = 2}, 41},
      {{.every = 10, .scheme = kSparse, .fragments = 3, .delay = 1, .mix = 0.25}, 34},
      {{.every = 7, .scheme = kNone, .fragments = 2, .delay = 2, .anchors_on_host = true}, 20}};
  for (const auto& [way, steps] : cases) {
    nn::Sequential model = make_layers();
    optim::SGD sgd(model->parameters(), 0.1);
    LocalSteps optimizer(sgd, model->named_parameters(), way);
    train(model, optimizer, 0, steps);
    Simulation expected(way, size());
    expected.run(steps, all_ranks());
    expect_simulated(model, optimizer, expected, rank());
    EXPECT_TRUE(equal_on_all_ranks(anchors_of(optimizer)));
  }
}

TEST(LibtorchLocalSteps, AnchorsHaveEqualBitsOnAllRanksAtAnyTime) {
  nn::Sequential model = make_layers();
  optim::AdamW adam(model->parameters(), optim::AdamWOptions(0.01));
  LocalSteps optimizer(adam, model->named_parameters(),
                       {.every = 6, .scheme = kSparse, .fragments = 3, .delay = 1, .mix = 0.5});
  for (std::int64_t step = 0; step < 14; ++step) {
    train(model, optimizer, step, step + 1);
    EXPECT_TRUE(equal_on_all_ranks(anchors_of(optimizer)));
  }
  EXPECT_EQ(equal_on_all_ranks(values_of(model)), size() == 1);
  optimizer.synchronize();
  EXPECT_TRUE(equal_on_all_ranks(values_of(model)));
  EXPECT_TRUE(same_bits(values_of(model), anchors_of(optimizer)));
  EXPECT_NE(optimizer.report().find("\"steps\": 14, \"every\": 6, \"step_s\": "),
            std::string::npos);
  EXPECT_NE(optimizer.report().find("\"delay_that_hides\": "), std::string::npos);
}

TEST(LibtorchLocalSteps, AutogradNoticesThatAnOuterStepChangedAParameter) {
  nn::Sequential model = make_layers();
  optim::SGD sgd(model->parameters(), 0.0);
  LocalSteps optimizer(sgd, model->named_parameters(), {.every = 1, .scheme = kNone});
  const at::Tensor parameter = model->parameters().front();
  train(model, optimizer, 0, 1);
  const auto before = parameter._version();
  train(model, optimizer, 1, 2);
  EXPECT_GT(parameter._version(), before);  // the inner step of libtorch leaves the version alone
}

TEST(LibtorchLocalSteps, SynchronizeAfterARoundMovesNoAnchor) {
  nn::Sequential model = make_layers();
  optim::SGD sgd(model->parameters(), 0.1);
  LocalSteps optimizer(sgd, model->named_parameters(), {.every = 3, .scheme = kNone});
  train(model, optimizer, 0, 6);
  const auto before = anchors_of(optimizer);
  optimizer.synchronize();  // a drift of zero would let the momentum move them
  EXPECT_TRUE(same_bits(anchors_of(optimizer), before));
  EXPECT_EQ(optimizer.counters().steps, 2u);
  train(model, optimizer, 6, 7);
  optimizer.synchronize();  // inside a round there is a drift
  EXPECT_EQ(optimizer.counters().steps, 3u);
  EXPECT_TRUE(equal_on_all_ranks(values_of(model)));
}

TEST(LibtorchLocalSteps, EachHalfOfTheRanksTrainsApartAmongItself) {
  Ranks half;
  for (std::uint32_t one = rank() % 2; one < size(); one += 2) half.push_back(one);
  const LocalStepsOptions way{
      .every = 6, .scheme = kSparse, .fragments = 2, .delay = 1, .mix = 0.5, .ranks = half};
  nn::Sequential model = make_layers();
  optim::SGD sgd(model->parameters(), 0.1);
  LocalSteps optimizer(sgd, model->named_parameters(), way);
  train(model, optimizer, 0, 20);
  Simulation expected(way, static_cast<std::uint32_t>(half.size()));
  expected.run(20, half);
  expect_simulated(model, optimizer, expected, rank() / 2);
  optimizer.synchronize();
  EXPECT_TRUE(equal_on_all_ranks(values_of(model), half));
  EXPECT_EQ(equal_on_all_ranks(values_of(model)), size() == 1);
  optimizer.close();
}

TEST(LibtorchLocalSteps, AnExchangeUnderWayHoldsNobodyUp) {
  nn::Sequential model = make_layers();
  optim::SGD sgd(model->parameters(), 0.1);
  LocalSteps optimizer(sgd, model->named_parameters(), {.every = 2, .scheme = kNone, .delay = 1});
  train(model, optimizer, 0, 1);
  if (rank() == 0) train(model, optimizer, 1, 2);  // the others start after this rank's next call
  barrier("rank 0 has started");
  if (rank() != 0) train(model, optimizer, 1, 2);
  train(model, optimizer, 2, 3);
  EXPECT_TRUE(equal_on_all_ranks(anchors_of(optimizer)));
  EXPECT_EQ(optimizer.counters().steps, 1u);
}

// Ranks that leave a training by an exception may begin another training.
TEST(LibtorchLocalSteps, AnExceptionDuringAnExchangeLeavesTheRunUsable) {
  nn::Sequential model = make_layers();
  optim::SGD sgd(model->parameters(), 0.1);
  const LocalStepsOptions way{.every = 2, .scheme = kSparse, .delay = 1};
  try {
    LocalSteps optimizer(sgd, model->named_parameters(), way);
    train(model, optimizer, 0, 2);
    throw std::runtime_error("the data are at their end");
  } catch (const std::runtime_error&) {
  }
  broadcast_parameters(*model);
  LocalSteps optimizer(sgd, model->named_parameters(), way);
  train(model, optimizer, 0, 5);
  optimizer.synchronize();
  EXPECT_TRUE(equal_on_all_ranks(values_of(model)));
}

TEST(LibtorchLocalSteps, AFrozenParameterStaysAndMovesAgainWhenItIsUnfrozen) {
  nn::Sequential model = make_layers();
  at::Tensor frozen = model->named_parameters()["2.weight"];
  frozen.set_requires_grad(false);
  const at::Tensor before = frozen.clone();
  optim::SGD sgd(model->parameters(), 0.1);
  LocalSteps optimizer(sgd, model->named_parameters(), {.every = 3, .scheme = kSparse});
  train(model, optimizer, 0, 7);
  EXPECT_TRUE(frozen.equal(before)) << "a frozen parameter moved";
  frozen.set_requires_grad(true);
  train(model, optimizer, 7, 12);
  EXPECT_FALSE(frozen.detach().equal(before)) << "an unfrozen parameter stayed";
  optimizer.synchronize();
  EXPECT_TRUE(equal_on_all_ranks(values_of(model)));
}

TEST(LibtorchLocalSteps, AnchorsOfSixteenBitParametersHaveThirtyTwo) {
  nn::Sequential model = make_layers();
  model->to(::torch::kBFloat16);
  optim::SGD sgd(model->parameters(), 0.0);
  LocalSteps optimizer(sgd, model->named_parameters(),
                       {.every = 1, .outer = OuterStep{0.003, 0.0}, .scheme = kNone});
  for (const at::Tensor& anchor : anchors_of(optimizer))
    EXPECT_EQ(anchor.scalar_type(), ::torch::kFloat);
  {
    const ::torch::NoGradGuard without_history;
    ::torch::manual_seed(50 + rank());
    for (at::Tensor& parameter : model->parameters())
      parameter.add_(::torch::randn_like(parameter));
  }
  optimizer.step();  // a small outer step, which bfloat16 rounds
  const auto moved = anchors_of(optimizer);
  bool has_more_bits = false;
  for (const at::Tensor& one : moved)
    has_more_bits |= !one.equal(one.to(::torch::kBFloat16).to(::torch::kFloat));
  EXPECT_TRUE(has_more_bits);
  for (int step = 0; step < 3; ++step) optimizer.step();  // the rounded rest is no drift
  EXPECT_TRUE(same_bits(anchors_of(optimizer), moved));
}

TEST(LibtorchLocalSteps, ClosuresSchedulesAndSkippedStepsWork) {
  nn::Sequential model = make_layers();
  optim::SGD sgd(model->parameters(), 0.1);
  LocalSteps optimizer(sgd, model->named_parameters(), {.every = 2, .scheme = kNone});
  optim::StepLR schedule(sgd, 2, 0.5);
  for (std::int64_t step = 0; step < 4; ++step) {
    const at::Tensor loss = optimizer.step([&] {
      optimizer.zero_grad();
      at::Tensor own = loss_on_rows_of(model, rank(), step);
      own.backward();
      return own;
    });
    EXPECT_GT(loss.item<float>(), 0.0f);
    schedule.step();
  }
  EXPECT_EQ(sgd.param_groups()[0].options().get_lr(), 0.05);
  optimizer.set_outer(OuterStep{.lr = 0.3});
  EXPECT_EQ(optimizer.outer().lr, 0.3);
  if (rank() == 0) {  // this rank leaves its step out, and counts it
    const auto before = values_of(model);
    optimizer.skip_step();
    EXPECT_TRUE(same_bits(values_of(model), before));
  } else {
    train(model, optimizer, 4, 5);
  }
  train(model, optimizer, 5, 6);
  EXPECT_EQ(optimizer.counters().steps, 3u);
  EXPECT_TRUE(equal_on_all_ranks(values_of(model)));
}

TEST(LibtorchLocalSteps, TiedAndComplexParametersTravelToo) {
  at::Tensor turn = ::torch::ones({4}, ::torch::kComplexFloat).requires_grad_();
  at::Tensor columns = ::torch::ones({4, 3}).t().requires_grad_();
  NamedTensors named;
  named.insert("turn", turn);
  named.insert("tied", turn);
  named.insert("columns", columns);
  optim::SGD sgd(std::vector<at::Tensor>{turn, columns}, 0.0);
  LocalSteps optimizer(sgd, named, {.every = 1, .outer = std::nullopt, .scheme = kNone});
  EXPECT_EQ(optimizer.anchors().size(), 2u);
  {
    const ::torch::NoGradGuard without_history;
    turn.mul_(c10::complex<double>(1.0, 2.0 * rank()));
    columns.add_(2.0 * rank());
  }
  optimizer.step();
  const auto mean = static_cast<double>(size() - 1);  // of 2 * rank
  const at::Tensor parts = ::torch::view_as_real(turn.detach());
  EXPECT_TRUE(parts.select(1, 0).allclose(::torch::ones({4})));
  EXPECT_TRUE(parts.select(1, 1).allclose(::torch::full({4}, mean)));
  EXPECT_TRUE(columns.detach().allclose(::torch::full({3, 4}, 1.0 + mean)));
}

}  // namespace
}  // namespace penstock::torch::testing::apart
