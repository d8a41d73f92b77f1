// Named operations on the program's own tensors; lists of ranks; accumulation.

#include "testing.hpp"

namespace penstock::torch::testing {
namespace {

double own() {
  return rank() + 1.0;
}
double sum_of_all() {
  return size() * (size() + 1.0) / 2;
}

TEST(LibtorchOperations, MeansAndSumsAreThoseOfAllRanks) {
  const at::Tensor tensor = ::torch::full({2, 3}, own());
  EXPECT_TRUE(allreduce(tensor, "mean").eq(sum_of_all() / size()).all().item<bool>());
  const at::Tensor sum = allreduce(tensor.t(), "sum", /*sum=*/true);
  EXPECT_EQ(sum.sizes(), at::IntArrayRef({3, 2}));
  EXPECT_TRUE(sum.eq(sum_of_all()).all().item<bool>());
  EXPECT_TRUE(tensor.eq(own()).all().item<bool>()) << "the argument was written to";
}

TEST(LibtorchOperations, SeveralUnderWayMatchByName) {
  std::vector<Pending> pending;
  for (int i = 0; i < 8; ++i) {
    const int number = rank() % 2 == 0 ? i : 7 - i;
    pending.push_back(start_allreduce(::torch::full({4}, own() * number, ::torch::kDouble),
                                      "of " + std::to_string(number), true));
  }
  for (int i = 0; i < 8; ++i) {
    const int number = rank() % 2 == 0 ? i : 7 - i;
    EXPECT_TRUE(
        pending[static_cast<std::size_t>(i)].wait().eq(sum_of_all() * number).all().item<bool>());
  }
  expect_error(PENSTOCK_FAILED_PRECONDITION, "was waited for already", [&] { pending[0].wait(); });
}

TEST(LibtorchOperations, EveryRankGetsWhatTheRootHas) {
  for (std::uint32_t root = 0; root < size(); ++root)
    EXPECT_EQ(broadcast(::torch::tensor({std::int64_t{rank()}}), "root", root).item<std::int64_t>(),
              root);
  expect_error(PENSTOCK_INVALID_ARGUMENT, "root",
               [] { broadcast(::torch::ones({1}), "nobody", size() + 3); });
}

TEST(LibtorchOperations, RowsOfAllRanksComeBelowEachOther) {
  const at::Tensor rows = ::torch::full({rank() + 1, 2}, own());
  const at::Tensor all = allgather(rows, "rows");
  ASSERT_EQ(all.size(0), static_cast<std::int64_t>(sum_of_all()));
  std::int64_t at = 0;
  for (std::uint32_t from = 0; from < size(); at += ++from)
    EXPECT_TRUE(all.narrow(0, at, from + 1).eq(from + 1.0).all().item<bool>());
  EXPECT_EQ(allgather(::torch::tensor(own()), "numbers").numel(), size());
  barrier();
}

TEST(LibtorchOperations, OnlyTheRanksThatAreNamedTakePart) {
  const std::uint32_t last = size() - 1;
  if (rank() == last) {
    EXPECT_EQ(allreduce(::torch::tensor(own()), "alone", true, {last}).item<double>(), own());
  }
  if (size() > 2 && (rank() == 0 || rank() == 2)) {
    const at::Tensor all = allgather(::torch::tensor(own()), "but one", {0, 2});
    EXPECT_TRUE(all.equal(::torch::tensor({1.0f, 3.0f})));
  }
  if (size() > 1 && rank() == 0) {
    expect_error(PENSTOCK_INVALID_ARGUMENT, "rank",
                 [&] { allreduce(::torch::ones({1}), "others", true, {last}); });
  }
}

TEST(LibtorchOperations, TensorsThatCannotTravelAreRefused) {
  expect_error(PENSTOCK_INVALID_ARGUMENT, "is not supported",
               [] { allreduce(::torch::ones({2}, ::torch::kBool), "flags"); });
  expect_error(PENSTOCK_INVALID_ARGUMENT, "dense tensor on the CPU", [] {
    allreduce(::torch::ones({2, 2}).to_sparse(), "sparse");
  });
  expect_error(PENSTOCK_INVALID_ARGUMENT, "dense tensor on the CPU",
               [] { allreduce(at::Tensor(), "nothing"); });
}

TEST(LibtorchAccumulation, SeveralPassesGiveTheStepOfOneOverAllOfThem) {
  nn::Sequential model = make_model(), whole = make_model();
  optim::SGD sgd(model->parameters(), 0.1), plain(whole->parameters(), 0.1);
  DistributedOptimizer optimizer(sgd, model->named_parameters(), {.backward_passes_per_step = 2});
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    for (int pass = 0; pass < 2; ++pass) {
      (loss_of(model, own_batch(2 * step + pass)) / 2).backward();
      // Between local passes gradients may be changed.
      if (pass == 0) model->parameters()[0].grad().mul_(1.0);
    }
    optimizer.step();
    plain.zero_grad();
    for (int pass = 0; pass < 2; ++pass)
      (loss_of(whole, whole_batch(2 * step + pass)) / 2).backward();
    plain.step();
  }
  EXPECT_EQ(optimizer.counters().steps, 4u);
  const auto values = values_of(model), wanted = values_of(whole);
  ASSERT_EQ(values.size(), wanted.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_TRUE(values[i].allclose(wanted[i], 1e-4, 1e-6));
}

TEST(LibtorchAccumulation, APassTooManyAndNoneAtAllAreRefused) {
  nn::Sequential model = make_model();
  optim::SGD sgd(model->parameters(), 0.1);
  expect_error(PENSTOCK_INVALID_ARGUMENT, "backward_passes_per_step is 0", [&] {
    DistributedOptimizer(sgd, model->named_parameters(), {.backward_passes_per_step = 0});
  });
  DistributedOptimizer optimizer(sgd, model->named_parameters(), {.backward_passes_per_step = 2});
  for (int pass = 0; pass < 2; ++pass) loss_of(model, own_batch(pass)).backward();
  expect_error(PENSTOCK_FAILED_PRECONDITION, "more than backward_passes_per_step times",
               [&] { loss_of(model, own_batch(2)).backward(); });
}

}  // namespace
}  // namespace penstock::torch::testing
