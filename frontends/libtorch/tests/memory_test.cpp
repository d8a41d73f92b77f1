// Tensors with every property that torch gives a dense tensor, through every operation and through
// the doors of gradients. The results must be right.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "testing.hpp"

namespace penstock::torch::testing {
namespace {

constexpr char kEverything[] =
    "[scheme]\ncompressor = \"topk\"\nmemory = \"residual\"\n"
    "[compressor.topk]\ndensity = 1.0\nvalue_type = \"fp32\"\n";

using Change = std::function<at::Tensor(const at::Tensor&)>;

struct Property {
  std::string name;
  Change change;
};

at::Tensor negated(const at::Tensor& tensor) {
  return at::_neg_view(-tensor);
}

// Properties that leave the values.
std::vector<Property> layouts() {
  return {
      {"contiguous", [](const at::Tensor& one) { return one; }},
      {"later in its storage",
       [](const at::Tensor& one) {
         return at::cat({one, one}).narrow(0, 2, 2).copy_(one);
       }},
      {"with gaps",
       [](const at::Tensor& one) {
         return at::stack({one, one}, -1).select(-1, 1);
       }},
      {"backwards", [](const at::Tensor& one) { return one.t().contiguous().t(); }},
  };
}
std::vector<Property> bits() {
  return {
      {"no bit", [](const at::Tensor& one) { return one; }},
      {"negative", negated},
      {"imaginary part of a conjugate",
       [](const at::Tensor& one) { return at::imag(at::complex(one, -one).conj()); }},
  };
}
std::vector<Property> states() {
  return {
      {"no state", [](const at::Tensor& one) { return one; }},
      {"requires_grad", [](const at::Tensor& one) { return one.detach().requires_grad_(); }},
      {"inference",
       [](const at::Tensor& one) {
         const c10::InferenceMode mode;
         return one.clone();
       }},
  };
}

// The values of a rank; 2 x 4, so that two ranks can share the rows.
at::Tensor values_of_rank(std::uint32_t from) {
  return ::torch::arange(1, 9, ::torch::kFloat).view({2, 4}) * (from + 1.0);
}
at::Tensor sum_of_ranks() {
  return values_of_rank(0) * (size() * (size() + 1.0) / 2);
}

// Calls `check` with this rank's values in a tensor of every combination of properties.
void with_every_kind(const std::function<void(const at::Tensor& tensor)>& check) {
  for (const Property& layout : layouts())
    for (const Property& bit : bits())
      for (const Property& state : states()) {
        SCOPED_TRACE(layout.name + ", " + bit.name + ", " + state.name);
        check(state.change(bit.change(layout.change(values_of_rank(rank())))));
      }
}

void expect_values(const at::Tensor& got, const at::Tensor& expected) {
  EXPECT_TRUE(got.detach().allclose(expected)) << got << " instead of " << expected;
}

TEST(LibtorchMemory, OperationsTakeTheValuesOfEveryKindOfTensor) {
  with_every_kind([](const at::Tensor& tensor) {
    expect_values(allreduce(tensor, "sum", true), sum_of_ranks());
    expect_values(broadcast(tensor, "root", size() - 1), values_of_rank(size() - 1));
    std::vector<at::Tensor> rows;
    for (std::uint32_t from = 0; from < size(); ++from) rows.push_back(values_of_rank(from));
    expect_values(allgather(tensor, "rows"), at::cat(rows));
    NamedTensors named;
    named.insert("one", tensor);
    broadcast_parameters(named, size() - 1);
    expect_values(tensor, values_of_rank(size() - 1));
  });
}

TEST(LibtorchMemory, GradientsOfEveryKindAreAveraged) {
  for (const char* scheme : {"", kEverything})
    with_every_kind([scheme](const at::Tensor& tensor) {
      NamedTensors named;
      named.insert("one", ::torch::zeros({2, 4}).requires_grad_());
      optim::SGD sgd({named["one"]}, 0.0);
      DistributedOptimizer optimizer(sgd, named, {.scheme = scheme});
      for (int step = 0; step < 2; ++step) {
        named["one"].mutable_grad() = tensor.detach();
        optimizer.synchronize();
        expect_values(named["one"].grad(), sum_of_ranks() / size());
        optimizer.step();
        // The result lies in the memory that was given, or in other memory.
        const at::NoGradGuard without_history;
        const c10::InferenceMode mode(tensor.is_inference());
        tensor.detach().copy_(values_of_rank(rank()));
      }
    });
}

TEST(LibtorchMemory, AGradientThatOneRankNegatesLazilyIsAveraged) {
  NamedTensors named;
  named.insert("one", ::torch::zeros({2, 4}).requires_grad_());
  optim::SGD sgd({named["one"]}, 0.0);
  DistributedOptimizer optimizer(sgd, named, {.check_parameters = false});
  const at::Tensor values = values_of_rank(rank());
  named["one"].mutable_grad() = rank() == size() - 1 ? negated(values) : values;
  optimizer.synchronize();
  expect_values(named["one"].grad(), sum_of_ranks() / size());
}

TEST(LibtorchMemory, AGradientWhoseElementsShareMemoryOrHaveNoneGetsMemoryForItsMean) {
  NamedTensors named;
  named.insert("one", ::torch::zeros({2, 4}).requires_grad_());
  optim::SGD sgd({named["one"]}, 0.0);
  DistributedOptimizer optimizer(sgd, named);
  const std::pair<at::Tensor, at::Tensor> cases[] = {
      {::torch::full({1, 4}, rank() + 1.0).expand({2, 4}), ::torch::ones({2, 4})},
      {(::torch::ones({5}) * (rank() + 1.0)).as_strided({2, 4}, {1, 1}), ::torch::ones({2, 4})},
      {at::_efficientzerotensor({2, 4}, at::kFloat), ::torch::zeros({2, 4})},
  };
  for (const auto& [gradient, of_rank_0] : cases) {
    named["one"].mutable_grad() = gradient;
    optimizer.synchronize();
    expect_values(named["one"].grad(), of_rank_0 * ((size() + 1.0) / 2));
    optimizer.step();
  }
}

TEST(LibtorchMemory, ALazilyNegatedParameterTrainsApart) {
  NamedTensors named;
  named.insert("one", negated(values_of_rank(0)).detach().requires_grad_());
  optim::SGD sgd({named["one"]}, 1.0);
  LocalSteps apart(sgd, named, {.every = 1, .outer = std::nullopt, .scheme = kEverything});
  for (int step = 1; step < 3; ++step) {
    named["one"].mutable_grad() = ::torch::full({2, 4}, rank() + 1.0);
    apart.step();
    expect_values(named["one"], values_of_rank(0) - step * (size() + 1.0) / 2);
  }
  apart.close();
}

TEST(LibtorchMemory, TensorsOfWhichNoCopyHasTheValuesAreRefused) {
  const at::Tensor quantized = at::quantize_per_tensor(::torch::ones({2, 4}), 1.0, 0, at::kQInt8);
  expect_error(PENSTOCK_INVALID_ARGUMENT, "expected a dense tensor",
               [&] { allreduce(quantized, "quantized"); });
  const std::pair<at::Tensor, std::string> cases[] = {
      {quantized, "expected a dense tensor"},
      {::torch::ones({2, 2}).to_sparse(), "expected a dense tensor"},
      {::torch::ones({1, 4}).expand({2, 4}), "has elements that share memory"},
  };
  for (const auto& [tensor, words] : cases) {
    NamedTensors named;
    named.insert("one", tensor);
    expect_error(PENSTOCK_INVALID_ARGUMENT, words, [&] { broadcast_parameters(named, 0); });
  }
}

}  // namespace
}  // namespace penstock::torch::testing
