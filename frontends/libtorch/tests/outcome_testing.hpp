// Helpers for tests of the outcome of results: they compare the parameters and the saved state of
// two loops bit for bit. One loop has a backward whose results are thrown away. The other loop
// omits that backward or runs it outside the exchange.
#ifndef PENSTOCK_LIBTORCH_TESTS_OUTCOME_TESTING_HPP
#define PENSTOCK_LIBTORCH_TESTS_OUTCOME_TESTING_HPP

#include <cmath>
#include <cstddef>
#include <cstring>
#include <map>
#include <string>

#include "testing.hpp"

namespace penstock::torch::testing {

inline constexpr char kPowerSgd[] =
    "[scheme]\ncompressor = \"powersgd\"\nmemory = \"residual\"\n"
    "[compressor.powersgd]\nrank = 1\nminimum_compression_rate = 1.0\n";
inline constexpr char kEfSign[] = "[scheme]\ncompressor = \"efsign\"\nmemory = \"residual\"\n";
inline constexpr char kRandomK[] =
    "[scheme]\ncompressor = \"randomk\"\nmemory = \"residual\"\n"
    "[compressor.randomk]\ndensity = 0.25\n";
inline constexpr const char* kSchemes[] = {kTopK, kDgc, kPowerSgd, kEfSign, kRandomK};
inline constexpr std::int64_t kLoop = 6;

// SGD that does not change the parameters while is_on is false.
class Switched final : public optim::SGD {
 public:
  using SGD::SGD;
  at::Tensor step(LossClosure closure = nullptr) override {
    return is_on ? SGD::step(closure) : at::Tensor();
  }
  bool is_on = true;
};

// A model in training, with an optimizer of its own.
struct Training {
  explicit Training(const char* scheme)
      : optimizer(sgd, model->named_parameters(), {.scheme = scheme}) {}

  at::Tensor loss(std::int64_t step) { return loss_of(model, own_batch(step)); }
  void backward(std::int64_t step) { loss(step).backward(); }
  // Adds `by` to every weight, as SAM does before and after its first backward.
  void climb(float by) {
    const ::torch::NoGradGuard without_history;
    for (at::Tensor& parameter : model->parameters()) parameter.add_(by);
  }
  double norm() {
    double squares = 0;
    for (const at::Tensor& parameter : model->parameters())
      squares += parameter.grad().square().sum().item<double>();
    return std::sqrt(squares);
  }
  // The saved state without the name of the set and the checksum, because both differ from
  // optimizer to optimizer.
  std::vector<std::uint8_t> state() {
    const std::vector<std::uint8_t> saved = optimizer.save_state();
    std::uint64_t name = 0;
    std::memcpy(&name, saved.data() + 8, sizeof name);
    return {saved.begin() + 16 + std::ptrdiff_t(name), saved.end() - 8};
  }

  nn::Sequential model = make_model();
  Switched sgd{model->parameters(), 0.1};
  DistributedOptimizer optimizer;
};

using Throw = void (*)(Training&);
inline const std::map<std::string, Throw> kWaysToThrowAway{
    {"zero_grad()", [](Training& one) { one.optimizer.zero_grad(); }},
    {"zero_grad(false)", [](Training& one) { one.optimizer.zero_grad(false); }},
    {"the module's", [](Training& one) { one.model->zero_grad(); }},
    {"in place",
     [](Training& one) {
       for (at::Tensor& parameter : one.model->parameters()) parameter.mutable_grad().zero_();
     }},
    {"by a factor",
     [](Training& one) {
       for (at::Tensor& parameter : one.model->parameters()) parameter.mutable_grad().mul_(0);
     }},
    {"by other tensors",
     [](Training& one) {
       for (at::Tensor& parameter : one.model->parameters())
         parameter.mutable_grad() = ::torch::zeros_like(parameter);
     }},
    {"skip_step()", [](Training& one) {
       one.optimizer.skip_step();
       one.optimizer.zero_grad();
     }}};

using Loop = std::function<void(Training&)>;

// Runs both loops from equal parameters and expects equal ends. In each loop `steps` steps count.
inline void expect_equal_ends(const Loop& one, const Loop& other, std::uint64_t steps,
                              std::uint64_t forgotten) {
  for (const char* scheme : kSchemes) {
    SCOPED_TRACE(scheme);
    Training ours(scheme), theirs(scheme);
    one(ours);
    other(theirs);
    EXPECT_TRUE(same_bits(values_of(ours.model), values_of(theirs.model)));
    EXPECT_FALSE(same_bits(values_of(ours.model), values_of(make_model())));
    EXPECT_EQ(ours.state(), theirs.state());
    EXPECT_EQ(ours.optimizer.counters().steps, steps);
    EXPECT_EQ(theirs.optimizer.counters().steps, steps);
    // The last step thrown away ends with the next backward.
    EXPECT_EQ(ours.optimizer.counters().forgotten_steps, forgotten);
    EXPECT_TRUE(same_bits_on_all_ranks(ours.model));
  }
}

inline void plain(Training& training) {
  train(training.optimizer, training.model, 0, kLoop);
}

}  // namespace penstock::torch::testing

#endif  // PENSTOCK_LIBTORCH_TESTS_OUTCOME_TESTING_HPP
