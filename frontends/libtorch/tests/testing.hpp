// Helpers for all tests of the frontend: a small model, batches that every rank can make, and
// checks of errors.
#ifndef PENSTOCK_LIBTORCH_TESTS_TESTING_HPP
#define PENSTOCK_LIBTORCH_TESTS_TESTING_HPP

#include <gtest/gtest.h>
#include <penstock/base.h>
#include <torch/torch.h>
#include <penstock/torch.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace penstock::torch::testing {

namespace nn = ::torch::nn;
namespace optim = ::torch::optim;

inline constexpr char kTopK[] =
    "[scheme]\ncompressor = \"topk\"\nmemory = \"residual\"\n[compressor.topk]\ndensity = 0.25\n";
inline constexpr char kDgc[] =
    "[scheme]\ncompressor = \"dgc\"\nmemory = \"dgc\"\n[compressor.dgc]\ndensity = 0.5\n";

// A model with equal weights on every rank.
inline nn::Sequential make_model() {
  ::torch::manual_seed(3);
  nn::Sequential model(nn::Linear(6, 8), nn::Tanh(), nn::Linear(8, 2));
  ::torch::set_num_threads(1);
  return model;
}

constexpr std::int64_t kRowsPerRank = 4;

// The rows of all ranks in a step, and the rows of this rank.
inline at::Tensor whole_batch(std::int64_t step) {
  ::torch::manual_seed(static_cast<std::uint64_t>(100 + step));
  return ::torch::randn({kRowsPerRank * size(), 6});
}
inline at::Tensor own_batch(std::int64_t step) {
  return whole_batch(step).narrow(0, kRowsPerRank * rank(), kRowsPerRank);
}

inline at::Tensor loss_of(nn::Sequential& model, const at::Tensor& batch) {
  return model->forward(batch).square().mean();
}

inline void train(DistributedOptimizer& optimizer, nn::Sequential& model, std::int64_t first,
                  std::int64_t last) {
  for (std::int64_t step = first; step < last; ++step) {
    optimizer.zero_grad();
    loss_of(model, own_batch(step)).backward();
    optimizer.step();
  }
}

// Trains on whole batches without the frontend. The ranks together must reach this result.
inline void train_alone(optim::Optimizer& optimizer, nn::Sequential& model, std::int64_t steps) {
  for (std::int64_t step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    loss_of(model, whole_batch(step)).backward();
    optimizer.step();
  }
}

inline std::vector<at::Tensor> values_of(const nn::Sequential& model) {
  std::vector<at::Tensor> values;
  for (const at::Tensor& parameter : model->parameters())
    values.push_back(parameter.detach().clone());
  return values;
}

inline bool same_bits(const std::vector<at::Tensor>& one, const std::vector<at::Tensor>& other) {
  for (std::size_t i = 0; i < one.size(); ++i) {
    if (!one[i].equal(other[i])) return false;
  }
  return one.size() == other.size();
}

// True if the parameters are close. The mean of P means equals the mean of all rows except for the
// order of sums; 1e-5 is 80 roundings of float32.
inline bool close(const nn::Sequential& one, const nn::Sequential& other) {
  const auto ours = one->parameters(), theirs = other->parameters();
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (!ours[i].allclose(theirs[i], 1e-5, 1e-6)) return false;
  }
  return ours.size() == theirs.size();
}

// Collective. True if this rank holds the bits of rank 0.
inline bool same_bits_on_all_ranks(const nn::Sequential& model) {
  nn::Sequential copy = make_model();
  const ::torch::NoGradGuard without_history;
  for (std::size_t i = 0; i < copy->parameters().size(); ++i)
    copy->parameters()[i].copy_(model->parameters()[i]);
  broadcast_parameters(*copy);
  return same_bits(values_of(copy), values_of(model));
}

// Runs `action`, which must throw an Error with this code and with `part` in its message.
inline void expect_error(std::uint32_t code, const std::string& part,
                         const std::function<void()>& action) {
  try {
    action();
    ADD_FAILURE() << "expected an error with: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

// The calls of the frontend to the core, through the C interface, since a test last reset the
// record with `observed() = {}` (see observed_door.cpp).
struct Observed {
  std::vector<double> learning_rates;
  int momentum = 0;
  int ready = 0;  // gradients handed in
  int looks = 0;  // reports about lost results
};
Observed& observed();

}  // namespace penstock::torch::testing

#endif  // PENSTOCK_LIBTORCH_TESTS_TESTING_HPP
