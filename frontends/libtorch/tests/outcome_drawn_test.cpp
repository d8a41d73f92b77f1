// Randomly drawn loops as users write them, run with and without the backwards whose results the
// loops throw away.

#include <cstdlib>
#include <random>

#include "outcome_testing.hpp"

namespace penstock::torch::testing {
namespace {

// One loop. Its draws depend only on the seed, not on `throws`.
class Drawn {
 public:
  Drawn(std::uint64_t seed, bool throws) : random_(seed), throws_(throws) {}

  void operator()(Training& training) {
    for (int round = 0; round < 12; ++round) (this->*kActions[draw(std::size(kActions))])(training);
    plain(training);
  }

 private:
  using Action = void (Drawn::*)(Training&);
  static const Action kActions[8];

  std::size_t draw(std::size_t below) { return std::size_t(random_() % below); }
  std::int64_t next_batch() { return batch_++; }

  void plain(Training& training) {
    training.optimizer.zero_grad();
    training.backward(next_batch());
    training.optimizer.step();
  }

  // Runs a backward, waits for its results, and throws them away.
  void probe(Training& training) {
    const auto way =
        std::next(kWaysToThrowAway.begin(), std::ptrdiff_t(draw(kWaysToThrowAway.size())));
    const std::int64_t batch = next_batch();
    if (!throws_) return;
    training.optimizer.zero_grad();
    training.backward(batch);
    training.optimizer.synchronize();
    way->second(training);
  }

  void sam(Training& training) {
    probe(training);
    training.optimizer.zero_grad();
    training.climb(0.25);
    training.backward(next_batch());
    training.climb(-0.25);
    training.optimizer.step();
  }

  void closure(Training& training) {
    const std::int64_t before = next_batch(), batch = next_batch();
    if (throws_) {
      training.optimizer.zero_grad();
      training.backward(before);
      training.optimizer.synchronize();
    }
    training.optimizer.step([&] {
      training.optimizer.zero_grad();
      at::Tensor loss = training.loss(batch);
      loss.backward();
      return loss;
    });
  }

  void two_that_are_used(Training& training) {
    training.optimizer.zero_grad();
    training.backward(next_batch());
    training.optimizer.synchronize();
    training.backward(next_batch());
    training.optimizer.step();
  }

  void clip(Training& training) {
    training.optimizer.zero_grad();
    training.backward(next_batch());
    training.optimizer.synchronize();
    for (at::Tensor& parameter : training.model->parameters()) parameter.mutable_grad().mul_(0.5);
    training.optimizer.step();
  }

  void save_and_load(Training& training) {
    const std::vector<std::uint8_t> saved = training.optimizer.save_state();
    probe(training);
    plain(training);
    training.optimizer.load_state(saved);
  }

  // Saves while the results of a backward are there, then throws the results away.
  void save_between(Training& training) {
    probe(training);
    const std::vector<std::uint8_t> saved = training.optimizer.save_state();
    plain(training);
    training.optimizer.load_state(saved);
  }

  std::mt19937_64 random_;
  bool throws_;
  std::int64_t batch_ = 0;
};

const Drawn::Action Drawn::kActions[8] = {&Drawn::plain,
                                          &Drawn::probe,
                                          &Drawn::sam,
                                          &Drawn::closure,
                                          &Drawn::two_that_are_used,
                                          &Drawn::clip,
                                          &Drawn::save_and_load,
                                          &Drawn::save_between};

TEST(LibtorchOutcome, DrawnLoopsLeaveNoTraceOfWhatTheyThrowAway) {
  const std::uint64_t loops = std::getenv("TEST_LONG") == nullptr ? 4 : 200;
  for (std::uint64_t seed = 1; seed <= loops; ++seed) {
    for (const char* scheme : kSchemes) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", " << scheme);
      Training ours(scheme), theirs(scheme);
      Drawn(seed, true)(ours);
      Drawn(seed, false)(theirs);
      ASSERT_TRUE(same_bits(values_of(ours.model), values_of(theirs.model)));
      ASSERT_EQ(ours.state(), theirs.state());
      ASSERT_EQ(ours.optimizer.counters().steps, theirs.optimizer.counters().steps);
      ASSERT_TRUE(same_bits_on_all_ranks(ours.model));
    }
  }
}

}  // namespace
}  // namespace penstock::torch::testing
