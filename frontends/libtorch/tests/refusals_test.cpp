// Calls that must be refused with a message; the program must be able to go on after each.

#include "testing.hpp"

namespace penstock::torch::testing {
namespace {

// Opens the runtime around all tests of this program. Calls before and after must be refused.
class Runtime : public ::testing::Environment {
 public:
  void SetUp() override {
    expect_error(PENSTOCK_FAILED_PRECONDITION, "call penstock::torch::init()", [] { rank(); });
    expect_error(PENSTOCK_FAILED_PRECONDITION, "call penstock::torch::init()", [] { make_one(); });
    EXPECT_FALSE(is_initialized());
    shutdown();          // no harm
    give_up("nothing");  // no harm either
    expect_error(PENSTOCK_INVALID_ARGUMENT, "expected only config or only config_text",
                 [] { init({.config = "a.toml", .config_text = "[scheme]"}); });
    init({.config_text = "[runtime]\ndeadline_s = 30\n"});
    EXPECT_TRUE(is_initialized());
    EXPECT_LT(local_rank(), local_size());
  }

  void TearDown() override {
    nn::Sequential model = make_model();
    optim::SGD sgd(model->parameters(), 0.1);
    DistributedOptimizer optimizer(sgd, model->named_parameters());
    train(optimizer, model, 0, 1);
    shutdown();
    expect_error(PENSTOCK_INVALID_ARGUMENT, "make the optimizer anew after init()",
                 [&] { optimizer.counters(); });
    optimizer.zero_grad();
    model->forward(::torch::ones({2, 6})).sum().backward();
    expect_error(PENSTOCK_INVALID_ARGUMENT, "the runtime was shut down", [&] { optimizer.step(); });
    expect_error(PENSTOCK_FAILED_PRECONDITION, "call penstock::torch::init()", [] { size(); });
  }

 private:
  static void make_one() {
    nn::Sequential model = make_model();
    optim::SGD sgd(model->parameters(), 0.1);
    const DistributedOptimizer optimizer(sgd, model->named_parameters());
  }
};

[[maybe_unused]] ::testing::Environment* const runtime =
    ::testing::AddGlobalTestEnvironment(new Runtime);

struct Refusals : ::testing::Test {
  nn::Sequential model = make_model();
  optim::SGD sgd{model->parameters(), 0.1};

  void backward() { loss_of(model, own_batch(0)).backward(); }
  DistributedOptimizer wrap(const Options& options = {}) {
    return DistributedOptimizer(sgd, model->named_parameters(), options);
  }
};

TEST_F(Refusals, AConfigurationForARuntimeThatIsOpen) {
  init();  // does nothing
  expect_error(PENSTOCK_INVALID_ARGUMENT, "call shutdown() first",
               [] { init({.config = "other.toml"}); });
}

TEST_F(Refusals, MomentumThatWouldCountTwice) {
  optim::SGD heavy(model->parameters(), optim::SGDOptions(0.1).momentum(0.9));
  optim::Adam adam(model->parameters());
  for (optim::Optimizer* inner : std::vector<optim::Optimizer*>{&heavy, &adam}) {
    expect_error(PENSTOCK_FAILED_PRECONDITION, "applies momentum, and so does the optimizer", [&] {
      DistributedOptimizer(*inner, model->named_parameters(), {.scheme = kDgc});
    });
  }
  expect_error(PENSTOCK_FAILED_PRECONDITION, "applies momentum, and so does the optimizer",
               [&] { wrap({.scheme = kDgc, .momentum = true}); });
  DistributedOptimizer optimizer = wrap({.scheme = kDgc});
  train(optimizer, model, 0, 2);
  static_cast<optim::SGDOptions&>(sgd.param_groups()[0].options()).momentum(0.9);
  expect_error(PENSTOCK_FAILED_PRECONDITION, "it would count twice",
               [&] { train(optimizer, model, 2, 3); });
}

TEST_F(Refusals, ASchedulerThatDefersUpdates) {
  expect_error(PENSTOCK_FAILED_PRECONDITION,
               "this frontend cannot update parameters there (DEFERRED_UPDATE)",
               [&] { wrap({.scheme = "[scheme]\nscheduler = \"dear\"\nroute = \"split\"\n"}); });
}

TEST_F(Refusals, ASchemeThatIsNotThere) {
  expect_error(PENSTOCK_INVALID_ARGUMENT, "scheme is the path nowhere.toml, which cannot be read",
               [&] { wrap({.scheme = "nowhere.toml"}); });
  EXPECT_THROW(wrap({.scheme = "[scheme]\ncompressor = \"topj\"\n"}), Error);
}

TEST_F(Refusals, ParametersWithoutNames) {
  expect_error(PENSTOCK_INVALID_ARGUMENT, "were not named: parameter 0 of group 0 (Float [8, 6])",
               [&] { DistributedOptimizer(sgd, model[2]->named_parameters()); });
}

TEST_F(Refusals, APlaceForAHookThatIsTaken) {
  {
    const DistributedOptimizer first = wrap();
    expect_error(PENSTOCK_FAILED_PRECONDITION, "parameter 0.weight already has a hook",
                 [&] { wrap(); });
  }
  DistributedOptimizer second = wrap();  // the first is gone, and its hooks with it
  train(second, model, 0, 1);
}

TEST_F(Refusals, BackwardTwiceInAStep) {
  DistributedOptimizer optimizer = wrap();
  train(optimizer, model, 0, 1);
  optimizer.zero_grad();
  backward();
  expect_error(PENSTOCK_FAILED_PRECONDITION, "more than backward_passes_per_step times",
               [&] { backward(); });
  // That pass has added to gradients during their exchange, so ranks might differ from here on.
  expect_error(PENSTOCK_FAILED_PRECONDITION, "was changed after loss.backward()",
               [&] { optimizer.step(); });
}

TEST_F(Refusals, GradientsThatAreClearedOrChangedOnTheirWay) {
  for (const std::int64_t steps_before : {0, 1}) {  // held in the first step, on their way later
    nn::Sequential own = make_model();
    optim::SGD inner(own->parameters(), 0.1);
    DistributedOptimizer optimizer(inner, own->named_parameters());
    train(optimizer, own, 0, steps_before);
    optimizer.zero_grad();
    loss_of(own, own_batch(0)).backward();
    expect_error(PENSTOCK_FAILED_PRECONDITION, "optimizer.zero_grad() was called after",
                 [&] { optimizer.zero_grad(); });
    own->parameters()[1].mutable_grad() = ::torch::zeros({8});
    expect_error(PENSTOCK_FAILED_PRECONDITION, "gradient 0.bias was changed",
                 [&] { optimizer.step(); });
  }
}

TEST_F(Refusals, SparseGradients) {
  nn::Embedding table(nn::EmbeddingOptions(5, 3).sparse(true));
  optim::SGD inner(table->parameters(), 0.1);
  DistributedOptimizer optimizer(inner, table->named_parameters());
  expect_error(PENSTOCK_INVALID_ARGUMENT, "gradient weight is sparse", [&] {
    table(::torch::tensor({1, 2})).sum().backward();
  });
}

TEST_F(Refusals, ParametersElsewhereOrOfAnotherKind) {
  NamedTensors named;
  named.insert("far", ::torch::empty({2}, ::torch::kMeta).requires_grad_());
  optim::SGD far({named["far"]}, 0.1);
  expect_error(PENSTOCK_INVALID_ARGUMENT, "parameter far is on meta, expected the CPU",
               [&] { DistributedOptimizer(far, named); });
  NamedTensors complex;
  complex.insert("turn", ::torch::ones({2}, ::torch::kComplexFloat).requires_grad_());
  optim::SGD turning({complex["turn"]}, 0.1);
  expect_error(PENSTOCK_INVALID_ARGUMENT,
               "gradient turn: element type of ComplexFloat [2] is not supported",
               [&] { DistributedOptimizer(turning, complex); });
}

TEST_F(Refusals, ParameterGroupsThatComeLater) {
  DistributedOptimizer optimizer = wrap();
  sgd.add_param_group({std::vector<at::Tensor>{::torch::ones({2}).requires_grad_()}});
  backward();
  expect_error(PENSTOCK_INVALID_ARGUMENT, "takes no further parameter groups",
               [&] { optimizer.step(); });
}

}  // namespace
}  // namespace penstock::torch::testing
