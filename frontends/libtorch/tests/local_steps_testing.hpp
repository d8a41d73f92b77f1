// What the tests of LocalSteps share: a model of four layers, batches of each rank, and a
// simulation of all ranks in one process, in plain loops from the papers' formulas.
#ifndef PENSTOCK_LIBTORCH_TESTS_LOCAL_STEPS_TESTING_HPP
#define PENSTOCK_LIBTORCH_TESTS_LOCAL_STEPS_TESTING_HPP

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "testing.hpp"

namespace penstock::torch::testing::apart {

inline constexpr char kNone[] = "[scheme]\ncompressor = \"none\"\nmemory = \"none\"\n";
inline constexpr char kSparse[] =
    "[scheme]\ncompressor = \"topk\"\nmemory = \"residual\"\n[compressor.topk]\ndensity = 0.25\n"
    "value_type = \"fp32\"\n";
inline const OuterStep kAverage{1.0, 0.0, false};

// Four layers (modules 0, 2, 4 and 6), of sizes of which a quarter is a whole number.
inline nn::Sequential make_layers() {
  ::torch::manual_seed(7);
  ::torch::set_num_threads(1);
  return nn::Sequential(nn::Linear(5, 8), nn::Tanh(), nn::Linear(8, 8), nn::Tanh(),
                        nn::Linear(nn::LinearOptions(8, 4).bias(false)), nn::Tanh(),
                        nn::Linear(nn::LinearOptions(4, 3).bias(false)));
}

inline at::Tensor loss_on_rows_of(nn::Sequential& model, std::uint32_t of_rank, std::int64_t step) {
  ::torch::manual_seed(1000 * (of_rank + 1) + static_cast<std::uint64_t>(step));
  const at::Tensor inputs = ::torch::randn({6, 5}), targets = ::torch::randn({6, 3});
  return (model->forward(inputs) - targets).square().mean();
}

// `optimizer`: an optimizer of torch, or LocalSteps.
template <typename Optimizer>
void train_once(nn::Sequential& model, Optimizer& optimizer, std::uint32_t of_rank,
                std::int64_t step) {
  optimizer.zero_grad();
  loss_on_rows_of(model, of_rank, step).backward();
  optimizer.step();
}

inline void train(nn::Sequential& model, LocalSteps& optimizer, std::int64_t first,
                  std::int64_t last) {
  for (std::int64_t step = first; step < last; ++step) train_once(model, optimizer, rank(), step);
}

inline std::vector<at::Tensor> anchors_of(LocalSteps& optimizer) {
  std::vector<at::Tensor> all;
  for (const auto& item : optimizer.anchors()) all.push_back(item.value().clone());
  return all;
}

// Collective. True if all ranks hold equal bits of these tensors.
inline bool equal_on_all_ranks(const std::vector<at::Tensor>& tensors, const Ranks& ranks = {}) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& one : tensors) flat.push_back(one.detach().flatten().to(::torch::kFloat));
  const at::Tensor own = ::torch::cat(flat).unsqueeze(0);
  const at::Tensor all = allgather(own, "bits", ranks);
  for (std::int64_t row = 0; row < all.size(0); ++row)
    if (!all[row].equal(own[0])) return false;
  return true;
}

// ---- the simulation ----

using Floats = std::vector<float>;

inline Floats floats_of(const at::Tensor& tensor) {
  const float* const first = tensor.data_ptr<float>();
  return Floats(first, first + tensor.numel());
}

inline float largest_difference(const Floats& one, const Floats& other) {
  if (one.size() != other.size()) return INFINITY;
  float largest = 0;
  for (std::size_t i = 0; i < one.size(); ++i)
    largest = std::max(largest, std::fabs(one[i] - other[i]));
  return largest;
}

// All ranks of a run. The scheme of the options is kNone or kSparse.
class Simulation {
 public:
  Simulation(const LocalStepsOptions& way, std::uint32_t ranks)
      : way_(way), outer_(way.outer.value_or(kAverage)), kept_(ranks) {
    for (std::uint32_t one = 0; one < ranks; ++one) {
      models.push_back(make_layers());
      inner_.push_back(std::make_unique<optim::SGD>(models.back()->parameters(), 0.1));
    }
    for (const auto& item : models[0]->named_parameters()) {
      anchors[item.key()] = floats_of(item.value());
      velocity_[item.key()] = Floats(anchors[item.key()].size());
      for (auto& kept : kept_) kept[item.key()] = velocity_[item.key()];
    }
  }

  // `rows`: the rank whose rows simulated rank i trains on.
  void run(std::int64_t steps, const std::vector<std::uint32_t>& rows) {
    for (std::int64_t step = 1; step <= steps; ++step) {
      for (std::size_t i = 0; i < models.size(); ++i)
        train_once(models[i], *inner_[i], rows[i], step - 1);
      if (const auto due = travelling_.find(step); due != travelling_.end()) land(due->second);
      for (std::int64_t fragment = 0; fragment < way_.fragments; ++fragment) {
        const std::int64_t place = (fragment + 1) * way_.every / way_.fragments;
        if (step % way_.every != place % way_.every) continue;
        const auto means = exchange(fragment);
        if (way_.delay == 0)
          land(means);
        else
          travelling_[step + way_.delay] = means;
      }
    }
  }

  std::vector<nn::Sequential> models;
  std::map<std::string, Floats> anchors;

 private:
  using Named = std::map<std::string, Floats>;

  Named exchange(std::int64_t fragment) {
    Named means;
    for (const auto& [name, anchor] : anchors) {
      if ((name[0] - '0') / 2 % way_.fragments != fragment) continue;
      Floats total(anchor.size());
      for (std::size_t i = 0; i < models.size(); ++i) {
        Floats drift = floats_of(models[i]->named_parameters()[name]);
        for (std::size_t e = 0; e < drift.size(); ++e) drift[e] = anchor[e] - drift[e];
        if (way_.scheme == kSparse) drift = largest_quarter(std::move(drift), kept_[i][name]);
        for (std::size_t e = 0; e < drift.size(); ++e) total[e] += drift[e];
      }
      for (float& one : total) one /= static_cast<float>(models.size());
      means[name] = total;
    }
    return means;
  }

  // The largest quarter of drift and residual; the rest becomes the residual.
  static Floats largest_quarter(Floats drift, Floats& residual) {
    for (std::size_t e = 0; e < drift.size(); ++e) residual[e] += drift[e];
    std::vector<std::size_t> order(drift.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::fabs(residual[a]) > std::fabs(residual[b]);
    });
    std::fill(drift.begin(), drift.end(), 0.0f);
    for (std::size_t n = 0; n < order.size() / 4; ++n)
      std::swap(drift[order[n]], residual[order[n]]);
    return drift;
  }

  void land(const Named& means) {
    const auto lr = static_cast<float>(outer_.lr), momentum = static_cast<float>(outer_.momentum);
    const auto mix = static_cast<float>(way_.mix);
    for (const auto& [name, mean] : means) {
      Floats& anchor = anchors[name];
      Floats& velocity = velocity_[name];
      for (std::size_t e = 0; e < mean.size(); ++e) {
        velocity[e] = momentum * velocity[e] + mean[e];
        anchor[e] -= lr * (outer_.nesterov ? mean[e] + momentum * velocity[e] : velocity[e]);
      }
      for (nn::Sequential& model : models) {
        float* const own = model->named_parameters()[name].data_ptr<float>();
        for (std::size_t e = 0; e < mean.size(); ++e) own[e] = mix * own[e] + (1 - mix) * anchor[e];
      }
    }
  }

  const LocalStepsOptions way_;
  const OuterStep outer_;
  std::vector<std::unique_ptr<optim::SGD>> inner_;
  Named velocity_;
  std::vector<Named> kept_;                   // residuals, by rank
  std::map<std::int64_t, Named> travelling_;  // by the step of their landing
};

}  // namespace penstock::torch::testing::apart

#endif  // PENSTOCK_LIBTORCH_TESTS_LOCAL_STEPS_TESTING_HPP
