// Trains scikit-learn's digits with libtorch on several ranks:
//
//   penstock run -np 4 --config conf/topk-residual.toml --
//   build/release/bin/penstock-libtorch-digits --steps 50

#include <cstdio>

#include "data.hpp"
#include "training.hpp"

namespace {

struct Network : torch::nn::Module {
  Network() {
    layers = register_module(
        "layers", torch::nn::Sequential(torch::nn::Linear(example::kPixels, 256), torch::nn::ReLU(),
                                        torch::nn::Linear(256, 256), torch::nn::ReLU(),
                                        torch::nn::Linear(256, 10)));
  }
  torch::Tensor forward(const torch::Tensor& pixels) { return layers->forward(pixels); }

  torch::nn::Sequential layers{nullptr};
};

struct Images {
  torch::Tensor pixels;  // float32 [images, 64]
  torch::Tensor labels;  // int64 [images]
};

Images images_of(example::Digits data) {
  const std::int64_t count = data.images();
  return {torch::from_blob(data.pixels.data(), {count, example::kPixels}, torch::kFloat).clone(),
          torch::from_blob(data.labels.data(), {count}, torch::kLong).clone()};
}

std::string accuracy(Network& network, const Images& images) {
  const torch::NoGradGuard without_history;
  const std::int64_t held_out = images.labels.numel() - example::kTrainedImages;
  const auto of = [&](const torch::Tensor& all) {
    return all.narrow(0, example::kTrainedImages, held_out);
  };
  const auto right = network.forward(of(images.pixels)).argmax(1).eq(of(images.labels)).sum();
  char text[80];
  std::snprintf(
      text, sizeof text, "%.1f %% of the images held out are classified correctly",
      100.0 * static_cast<double>(right.item<std::int64_t>()) / static_cast<double>(held_out));
  return text;
}

void run(const example::Options& options) {
  const Images images = images_of(example::read_digits(options.data));
  Network network;
  const auto loss_of = [&](std::int64_t step) {
    const torch::Tensor chosen = torch::tensor(
        example::draw(options.seed, static_cast<std::uint64_t>(step), penstock::torch::rank(),
                      options.samples, example::kTrainedImages));
    return torch::nn::functional::cross_entropy(
        network.forward(images.pixels.index_select(0, chosen)),
        images.labels.index_select(0, chosen));
  };
  example::train(network, options, loss_of, [&] { return accuracy(network, images); });
}

}  // namespace

int main(int count, char** words) {
  const example::Program program{
      "penstock-libtorch-digits",
      "Trains a network of three layers on scikit-learn's digits with libtorch, each rank on "
      "batches\nof its own, gradients averaged by Penstock. Alone it is one rank.\n",
      "build/data/digits.bin",
      "images",
      32,
      0.1};
  return example::run_program(program, count, words, run);
}
