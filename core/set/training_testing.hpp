// For tests: a small training problem whose gradients depend on the parameters, so that a wrong
// step shows in all later steps. Parameters and updates are in double, so that two trainings
// differ only by the rounding of the runtime.
#pragma once

#include "core/set/testing.hpp"

#include <testing/data.hpp>

#include <functional>
#include <vector>

namespace penstock::testing {

using Values = std::vector<std::vector<float>>;
using Doubles = std::vector<std::vector<double>>;

inline size_t numel_of(const GradientShape& shape) {
  size_t numel = 1;
  for (int64_t extent : shape.shape) numel *= static_cast<size_t>(extent);
  return numel;
}

class Problem {
 public:
  static constexpr uint32_t kMostRanks = 8;

  explicit Problem(std::vector<GradientShape> shapes) : shapes_(std::move(shapes)) {
    for (uint32_t rank = 0; rank < kMostRanks; ++rank)
      for (size_t g = 0; g < shapes_.size(); ++g) {
        const uint64_t seed = 1000 + 50 * rank + g;
        centres_[rank].push_back(test::heavy_tailed(numel_of(shapes_[g]), seed));
        noise_[rank].push_back(test::heavy_tailed(numel_of(shapes_[g]), 5000 + seed));
      }
  }

  const std::vector<GradientShape>& shapes() const { return shapes_; }

  Doubles start() const {
    Doubles parameters;
    for (const auto& of_gradient : centres_[1])
      parameters.emplace_back(of_gradient.rbegin(), of_gradient.rend());
    return parameters;
  }

  // The gradient of a quadratic function around a centre of this rank, plus noise of this rank,
  // which is shifted by 37 entries in each step.
  Values gradients(const Doubles& parameters, uint32_t rank, uint64_t step) const {
    Values result;
    for (size_t g = 0; g < shapes_.size(); ++g) {
      const size_t numel = numel_of(shapes_[g]);
      auto& values = result.emplace_back(numel);
      for (size_t i = 0; i < numel; ++i) {
        const double curvature = 0.1 + 0.15 * double(i % 7);
        const double noise = noise_[rank][g][(i + 37 * step) % numel];
        values[i] = float(curvature * (parameters[g][i] - centres_[rank][g][i]) + 0.1 * noise);
      }
    }
    return result;
  }

  // The exact mean over ranks.
  Doubles mean(const Doubles& parameters, uint32_t size, uint64_t step) const {
    Doubles result;
    for (const auto& shape : shapes_) result.emplace_back(numel_of(shape), 0.0);
    for (uint32_t rank = 0; rank < size; ++rank) {
      const Values own = gradients(parameters, rank, step);
      for (size_t g = 0; g < own.size(); ++g)
        for (size_t i = 0; i < own[g].size(); ++i) result[g][i] += double(own[g][i]) / size;
    }
    return result;
  }

 private:
  std::vector<GradientShape> shapes_;
  Values centres_[kMostRanks], noise_[kMostRanks];
};

inline constexpr double kLearningRate = 0.1;

template <typename Update>
void descend(Doubles& parameters, const Update& update) {
  for (size_t g = 0; g < parameters.size(); ++g)
    for (size_t i = 0; i < parameters[g].size(); ++i)
      parameters[g][i] -= kLearningRate * double(update[g][i]);
}

// Parameters of every rank after every step of a plain loop with `scheme`: [rank][step].
inline std::vector<std::vector<Doubles>> train(uint32_t size, const std::string& scheme,
                                               const Problem& problem, uint64_t steps) {
  std::vector<std::vector<Doubles>> trajectory(size);
  with_ranks(size, scheme, [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, problem.shapes());
    ASSERT_OK(set.status());
    Doubles parameters = problem.start();
    for (uint64_t step = 0; step < steps; ++step) {
      Values gradients = problem.gradients(parameters, rank, step);
      ASSERT_OK(run_step(*set.value(), gradients));
      descend(parameters, gradients);
      trajectory[rank].push_back(parameters);
    }
  });
  return trajectory;
}

}  // namespace penstock::testing
