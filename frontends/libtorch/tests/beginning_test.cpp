// Every rank begins with equal parameters, buffers and states of optimizers.

#include "testing.hpp"

namespace penstock::torch::testing {
namespace {

struct WithBuffers : nn::Module {
  WithBuffers() {
    const auto value = static_cast<double>(rank());
    weight = register_parameter("weight", ::torch::full({3, 2}, value));
    columns = register_parameter("columns", ::torch::full({4, 3}, value).t());
    half = register_parameter("half", ::torch::full({5}, value, ::torch::kHalf));
    flag = register_buffer("flag", ::torch::full({3}, rank() == 0, ::torch::kBool));
    count = register_buffer("count", ::torch::full({}, rank(), ::torch::kLong));
  }
  at::Tensor weight, columns, half, flag, count;
};

TEST(LibtorchBeginning, EveryRankGetsParametersAndBuffersOfTheRoot) {
  for (std::uint32_t root = 0; root < size(); ++root) {
    WithBuffers module;
    broadcast_parameters(module, root);
    for (const auto& item : module.named_parameters())
      EXPECT_TRUE(item.value().detach().eq(static_cast<double>(root)).all().item<bool>())
          << item.key();
    EXPECT_EQ(module.flag.all().item<bool>(), root == 0);
    EXPECT_EQ(module.count.item<std::int64_t>(), root);
  }
}

TEST(LibtorchBeginning, NamedTensorsAloneAreBroadcastToo) {
  NamedTensors named;
  named.insert("one", ::torch::full({2}, rank() + 1.0));
  broadcast_parameters(named);
  EXPECT_TRUE(named["one"].eq(1.0).all().item<bool>());
}

TEST(LibtorchBeginning, ARootThatIsNotThereIsRefused) {
  nn::Sequential model = make_model();
  expect_error(PENSTOCK_INVALID_ARGUMENT,
               "root is 64, expected a rank below " + std::to_string(size()),
               [&] { broadcast_parameters(*model, 64); });
}

TEST(LibtorchBeginning, AnOptimizersStateAndOptionsAreThoseOfTheRoot) {
  nn::Sequential model = make_model();
  optim::Adam adam(model->parameters(), optim::AdamOptions(0.01 * (1 + rank())));
  // Only the root has state, as after loading a checkpoint on that rank.
  if (rank() == 0) {
    loss_of(model, own_batch(0)).backward();
    adam.step();
    adam.zero_grad();
  }
  broadcast_parameters(*model);
  broadcast_optimizer_state(adam);
  EXPECT_EQ(adam.param_groups()[0].options().get_lr(), 0.01);
  EXPECT_EQ(adam.state().size(), 4u);
  DistributedOptimizer optimizer(adam, model->named_parameters());
  train(optimizer, model, 1, 4);
  EXPECT_TRUE(same_bits_on_all_ranks(model));
}

TEST(LibtorchBeginning, StateThatTheRootLacksIsDropped) {
  nn::Sequential model = make_model();
  optim::Adam adam(model->parameters(), optim::AdamOptions(0.01));
  if (rank() != 0) {
    loss_of(model, own_batch(0)).backward();
    adam.step();
  }
  broadcast_optimizer_state(adam);
  EXPECT_EQ(adam.state().size(), 0u);
}

}  // namespace
}  // namespace penstock::torch::testing
