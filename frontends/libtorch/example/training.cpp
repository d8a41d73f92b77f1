// The common parts of the examples. The calls of penstock::torch make them distributed programs.

#include "training.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <vector>

#include "data.hpp"

namespace example {
namespace {

namespace distributed = penstock::torch;

std::vector<float> weights_of(const torch::nn::Module& network) {
  std::vector<float> all;
  for (const torch::Tensor& parameter : network.parameters()) {
    const torch::Tensor flat = parameter.detach().contiguous().flatten();
    all.insert(all.end(), flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel());
  }
  return all;
}

void set_weights(torch::nn::Module& network, std::vector<float> all) {
  const torch::NoGradGuard without_history;
  std::int64_t taken = 0;
  const torch::Tensor flat =
      torch::from_blob(all.data(), static_cast<std::int64_t>(all.size()), torch::kFloat);
  for (torch::Tensor& parameter : network.parameters()) {
    parameter.copy_(flat.narrow(0, taken, parameter.numel()).view_as(parameter));
    taken += parameter.numel();
  }
}

void write_losses(const std::string& path, const std::vector<double>& losses,
                  const distributed::Counters& counters) {
  std::ofstream file(path);
  file.precision(std::numeric_limits<double>::max_digits10);
  file << "{\"ranks\": " << distributed::size() << ", \"moved_bytes\": " << counters.moved_bytes
       << ", \"losses\": [";
  for (std::size_t i = 0; i < losses.size(); ++i) file << (i > 0 ? ", " : "") << losses[i];
  file << "]}\n";
  file.close();
  if (!file) throw std::runtime_error(path + " cannot be written; is its folder there?");
}

// Trains with either optimizer, which end a step alike. Returns the losses.
template <typename Optimizer>
std::vector<double> train_with(Optimizer& optimizer, const Options& options,
                               const std::function<torch::Tensor(std::int64_t step)>& loss_of) {
  std::vector<double> losses;
  const std::int64_t between_lines = std::max<std::int64_t>(1, options.steps / 10);
  for (std::int64_t step = 0; step < options.steps; ++step) {
    optimizer.zero_grad();
    const torch::Tensor loss = loss_of(step);
    loss.backward();   // gradients leave while it runs, if ranks exchange every gradient
    optimizer.step();  // waits for their mean
    losses.push_back(loss.item<double>());
    const bool tells = (step + 1) % between_lines == 0 || step + 1 == options.steps;
    if (tells && distributed::rank() == 0) {
      std::printf("step %lld of %lld: loss %.4f\n", static_cast<long long>(step + 1),
                  static_cast<long long>(options.steps), losses.back());
      std::fflush(stdout);
    }
  }
  return losses;
}

}  // namespace

void train(torch::nn::Module& network, const Options& options,
           const std::function<torch::Tensor(std::int64_t step)>& loss_of,
           const std::function<std::string()>& result) {
  if (!options.initial.empty()) {
    const auto size = static_cast<std::int64_t>(weights_of(network).size());
    set_weights(network, read_floats(options.initial, size));
  }
  torch::optim::SGD sgd(network.parameters(),
                        torch::optim::SGDOptions(options.rate).momentum(options.momentum));
  distributed::broadcast_parameters(network);
  std::vector<double> losses;
  distributed::Counters counters{};
  if (options.every == 0) {
    distributed::DistributedOptimizer optimizer(sgd, network.named_parameters());
    losses = train_with(optimizer, options, loss_of);
    counters = optimizer.counters();
  } else {
    distributed::LocalSteps optimizer(sgd, network.named_parameters(),
                                      {.every = options.every,
                                       .fragments = options.fragments,
                                       .delay = options.delay,
                                       .mix = options.mix});
    losses = train_with(optimizer, options, loss_of);
    optimizer.synchronize();  // all ranks end with equal parameters
    counters = optimizer.counters();
  }
  if (distributed::rank() != 0) return;
  if (!options.losses.empty()) write_losses(options.losses, losses, counters);
  if (!options.weights.empty()) write_floats(options.weights, weights_of(network));
  std::printf("%s; %.0f bytes per step left each of %u ranks\n", result().c_str(),
              static_cast<double>(counters.moved_bytes) / static_cast<double>(options.steps),
              distributed::size());
}

int run_program(const Program& program, int count, char** words, void (*run)(const Options&)) {
  std::string reason;
  try {
    const Options options = read_options(program, count, words);
    if (options.help) {
      std::fputs(help_text(program).c_str(), stdout);
      return 0;
    }
    torch::set_num_threads(1);  // ranks share the cores; one thread also fixes the order of sums
    distributed::init();        // the scheme: PENSTOCK_CONFIG, which `penstock run --config` sets
    torch::manual_seed(options.seed + distributed::rank());
    run(options);
    distributed::shutdown();
    return 0;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s: %s\n", program.name.c_str(), error.what());
    return 2;
  } catch (const c10::Error& error) {
    reason = error.what_without_backtrace();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  std::fprintf(stderr, "%s: %s\n", program.name.c_str(), reason.c_str());
  distributed::give_up(reason);  // so that no other rank waits for this one
  return 1;
}

}  // namespace example
