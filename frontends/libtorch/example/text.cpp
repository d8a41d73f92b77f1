// Trains a transformer on the characters of the King James Bible with libtorch on several ranks:
//
//   penstock run -np 4 --config conf/topk-residual.toml --
//   build/release/bin/penstock-libtorch-text --steps 200

#include <cmath>
#include <cstdio>

#include "data.hpp"
#include "training.hpp"

namespace {

namespace nn = torch::nn;

constexpr std::int64_t kWidth = 128, kHeads = 4, kLayers = 2;

// Computes the product and the bias in one operation, as Python's nn.Linear does. The C++ Linear
// adds the bias in a second operation if x has three dimensions, which rounds differently.
torch::Tensor through(const nn::Linear& layer, const torch::Tensor& x) {
  return at::linear(x, layer->weight, layer->bias);
}

// Pre-norm transformer block: x + attention(norm(x)), then x + mlp(norm(x)).
struct BlockImpl : nn::Module {
  BlockImpl() {
    attention_norm = register_module("attention_norm", norm());
    query_key_value = register_module("query_key_value", nn::Linear(kWidth, 3 * kWidth));
    projection = register_module("projection", nn::Linear(kWidth, kWidth));
    mlp_norm = register_module("mlp_norm", norm());
    expand = register_module("expand", nn::Linear(kWidth, 4 * kWidth));
    contract = register_module("contract", nn::Linear(4 * kWidth, kWidth));
  }
  static nn::LayerNorm norm() { return nn::LayerNorm(nn::LayerNormOptions({kWidth})); }

  torch::Tensor forward(torch::Tensor x) {
    const std::int64_t batch = x.size(0), length = x.size(1);
    const std::vector<torch::Tensor> heads = through(query_key_value, attention_norm(x))
                                                 .view({batch, length, 3, kHeads, kWidth / kHeads})
                                                 .permute({2, 0, 3, 1, 4})
                                                 .unbind();
    const torch::Tensor mixed =
        at::scaled_dot_product_attention(heads[0], heads[1], heads[2], {}, 0.0, true);
    x = x + through(projection, mixed.transpose(1, 2).reshape({batch, length, kWidth}));
    return x + through(contract, torch::gelu(through(expand, mlp_norm(x))));
  }

  nn::LayerNorm attention_norm{nullptr}, mlp_norm{nullptr};
  nn::Linear query_key_value{nullptr}, projection{nullptr}, expand{nullptr}, contract{nullptr};
};
TORCH_MODULE(Block);

// The input is codes of characters; the output is the logits of the characters that follow.
struct Network : nn::Module {
  explicit Network(std::int64_t vocabulary) {
    token = register_module("token", nn::Embedding(vocabulary, kWidth));
    position = register_module("position", nn::Embedding(example::kContext, kWidth));
    blocks = register_module("blocks", nn::ModuleList());
    for (std::int64_t layer = 0; layer < kLayers; ++layer) blocks->push_back(Block());
    norm = register_module("norm", BlockImpl::norm());
    head = register_module("head", nn::Linear(nn::LinearOptions(kWidth, vocabulary).bias(false)));
  }

  torch::Tensor forward(const torch::Tensor& codes) {
    torch::Tensor x = token(codes);
    x = x + position(torch::arange(codes.size(1)));
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    return through(head, norm(x));
  }

  nn::Embedding token{nullptr}, position{nullptr};
  nn::ModuleList blocks{nullptr};
  nn::LayerNorm norm{nullptr};
  nn::Linear head{nullptr};
};

// Windows of the text that begin at `starts`, and for each character the character after it.
struct Windows {
  torch::Tensor inputs, targets;  // int64 [windows, kContext]
};
Windows windows_at(const torch::Tensor& codes, const std::vector<std::int64_t>& starts) {
  std::vector<torch::Tensor> rows;
  for (const std::int64_t start : starts)
    rows.push_back(codes.narrow(0, start, example::kContext + 1));
  const torch::Tensor all = torch::stack(rows).to(torch::kLong);
  return {all.narrow(1, 0, example::kContext).contiguous(),
          all.narrow(1, 1, example::kContext).contiguous()};
}

torch::Tensor loss_on(Network& network, const Windows& windows) {
  const torch::Tensor logits = network.forward(windows.inputs);
  return nn::functional::cross_entropy(logits.reshape({-1, logits.size(2)}),
                                       windows.targets.reshape({-1}));
}

std::string held_out(Network& network, const example::Text& text, const torch::Tensor& codes) {
  const torch::NoGradGuard without_history;
  const std::int64_t limit = codes.numel() - text.trained() - example::kContext - 1;
  std::vector<std::int64_t> starts;
  for (std::int64_t window = 0; window < 64; ++window)
    starts.push_back(text.trained() + window * limit / 63);
  char said[80];
  std::snprintf(said, sizeof said, "%.3f bits per character of the text held out",
                loss_on(network, windows_at(codes, starts)).item<double>() / std::log(2.0));
  return said;
}

void run(const example::Options& options) {
  example::Text text = example::read_text(options.data);
  const torch::Tensor codes = torch::from_blob(
      text.codes.data(), {static_cast<std::int64_t>(text.codes.size())}, torch::kByte);
  Network network(text.vocabulary);
  const auto limit = static_cast<std::uint64_t>(text.trained() - example::kContext);
  const auto loss_of = [&](std::int64_t step) {
    const auto starts = example::draw(options.seed, static_cast<std::uint64_t>(step),
                                      penstock::torch::rank(), options.samples, limit);
    return loss_on(network, windows_at(codes, starts));
  };
  example::train(network, options, loss_of, [&] { return held_out(network, text, codes); });
}

}  // namespace

int main(int count, char** words) {
  const example::Program program{
      "penstock-libtorch-text",
      "Trains a transformer of two blocks to tell the next character of the King James Bible with\n"
      "libtorch, each rank on windows of its own, gradients averaged by Penstock.\n",
      "build/data/text.bin",
      "windows",
      8,
      0.3};
  return example::run_program(program, count, words, run);
}
