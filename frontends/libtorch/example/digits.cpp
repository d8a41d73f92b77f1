// Trains scikit-learn's digits with libtorch on several ranks:
//
//   penstock run -np 4 --config conf/topk-residual.toml --
//   build/release/bin/penstock-libtorch-digits --steps 50
//
// What makes it a distributed program are the five calls of penstock::torch.

#include <torch/torch.h>
#include <penstock/torch.hpp>

#include <cstdio>
#include <fstream>
#include <limits>

#include "data.hpp"
#include "options.hpp"

namespace {

namespace distributed = penstock::torch;

struct Network : torch::nn::Module {
  Network() {
    layers = register_module(
        "layers", torch::nn::Sequential(torch::nn::Linear(digits::kPixels, 256), torch::nn::ReLU(),
                                        torch::nn::Linear(256, 256), torch::nn::ReLU(),
                                        torch::nn::Linear(256, 10)));
  }
  torch::Tensor forward(const torch::Tensor& pixels) { return layers->forward(pixels); }

  torch::nn::Sequential layers{nullptr};
};

std::vector<float> weights_of(const Network& network) {
  std::vector<float> all;
  for (const torch::Tensor& parameter : network.parameters()) {
    const torch::Tensor flat = parameter.detach().contiguous().flatten();
    all.insert(all.end(), flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel());
  }
  return all;
}

void set_weights(Network& network, std::vector<float> all) {
  const torch::NoGradGuard without_history;
  std::int64_t taken = 0;
  const torch::Tensor flat =
      torch::from_blob(all.data(), static_cast<std::int64_t>(all.size()), torch::kFloat);
  for (torch::Tensor& parameter : network.parameters()) {
    parameter.copy_(flat.narrow(0, taken, parameter.numel()).view_as(parameter));
    taken += parameter.numel();
  }
}

struct Images {
  torch::Tensor pixels;  // float32 [images, 64]
  torch::Tensor labels;  // int64 [images]
};

Images images_of(digits::Data& data) {
  const std::int64_t count = data.images();
  return {torch::from_blob(data.pixels.data(), {count, digits::kPixels}, torch::kFloat).clone(),
          torch::from_blob(data.labels.data(), {count}, torch::kLong).clone()};
}

// The loss of this rank in every step.
std::vector<double> train(Network& network, distributed::DistributedOptimizer& optimizer,
                          const Images& images, const digits::Options& options) {
  std::vector<double> losses;
  const std::int64_t between_lines = std::max<std::int64_t>(1, options.steps / 10);
  for (std::int64_t step = 0; step < options.steps; ++step) {
    const torch::Tensor chosen = torch::tensor(digits::batch(
        options.seed, static_cast<std::uint64_t>(step), distributed::rank(), options.images));
    optimizer.zero_grad();
    const torch::Tensor loss =
        torch::nn::functional::cross_entropy(network.forward(images.pixels.index_select(0, chosen)),
                                             images.labels.index_select(0, chosen));
    loss.backward();   // gradients leave while it runs
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

double accuracy(Network& network, const Images& images) {
  const torch::NoGradGuard without_history;
  const std::int64_t held_out = images.labels.numel() - digits::kTrained;
  const torch::Tensor guessed =
      network.forward(images.pixels.narrow(0, digits::kTrained, held_out)).argmax(1);
  const torch::Tensor right = guessed.eq(images.labels.narrow(0, digits::kTrained, held_out));
  return static_cast<double>(right.sum().item<std::int64_t>()) / static_cast<double>(held_out);
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

void run(const digits::Options& options) {
  torch::set_num_threads(1);  // ranks share the cores; one thread also fixes the order of sums
  digits::Data data = digits::read_data(options.data);
  const Images images = images_of(data);

  distributed::init();  // the scheme: PENSTOCK_CONFIG, which `penstock run --config` sets
  torch::manual_seed(options.seed + distributed::rank());
  Network network;
  if (!options.initial.empty()) {
    const auto size = static_cast<std::int64_t>(weights_of(network).size());
    set_weights(network, digits::read_floats(options.initial, size));
  }
  torch::optim::SGD sgd(network.parameters(),
                        torch::optim::SGDOptions(options.rate).momentum(options.momentum));
  distributed::DistributedOptimizer optimizer(sgd, network.named_parameters());
  distributed::broadcast_parameters(network);

  const std::vector<double> losses = train(network, optimizer, images, options);
  if (distributed::rank() == 0) {
    const distributed::Counters counters = optimizer.counters();
    if (!options.losses.empty()) write_losses(options.losses, losses, counters);
    if (!options.weights.empty()) digits::write_floats(options.weights, weights_of(network));
    std::printf(
        "%.1f %% of the images held out are told right; %.0f bytes per step left each of %u "
        "ranks\n",
        100.0 * accuracy(network, images),
        static_cast<double>(counters.moved_bytes) / static_cast<double>(options.steps),
        distributed::size());
  }
}

}  // namespace

int main(int count, char** words) {
  std::string reason;
  try {
    const digits::Options options = digits::read_options(count, words);
    if (options.help) {
      std::fputs(digits::help_text().c_str(), stdout);
      return 0;
    }
    run(options);
    distributed::shutdown();
    return 0;
  } catch (const digits::UsageError& error) {
    std::fprintf(stderr, "penstock-libtorch-digits: %s\n", error.what());
    return 2;
  } catch (const c10::Error& error) {
    reason = error.what_without_backtrace();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  std::fprintf(stderr, "penstock-libtorch-digits: %s\n", reason.c_str());
  distributed::give_up(reason);  // so that no other rank waits for this one
  return 1;
}
