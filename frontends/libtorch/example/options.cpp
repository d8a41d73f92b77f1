// The command line of the example.

#include "options.hpp"

#include <charconv>
#include <functional>
#include <map>
#include <string_view>

namespace digits {
namespace {

template <typename Number>
void read_number(const std::string& flag, const std::string& text, Number least, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || !(number >= least))
    throw UsageError(flag + " is '" + text + "', expected a number of at least " +
                     std::to_string(least));
}

using Setter = std::function<void(const std::string& flag, const std::string& text)>;

Setter text_into(std::string& target) {
  return [&target](const std::string&, const std::string& text) { target = text; };
}

template <typename Number>
Setter number_into(Number& target, Number least) {
  return [&target, least](const std::string& flag, const std::string& text) {
    read_number(flag, text, least, target);
  };
}

}  // namespace

Options read_options(int count, const char* const* words) {
  Options options;
  const std::map<std::string, Setter, std::less<>> setters = {
      {"--data", text_into(options.data)},
      {"--initial", text_into(options.initial)},
      {"--losses", text_into(options.losses)},
      {"--weights", text_into(options.weights)},
      {"--steps", number_into<std::int64_t>(options.steps, 1)},
      {"--images", number_into<std::int64_t>(options.images, 1)},
      {"--seed", number_into<std::uint64_t>(options.seed, 0)},
      {"--rate", number_into<double>(options.rate, 0.0)},
      {"--momentum", number_into<double>(options.momentum, 0.0)},
  };
  for (int i = 1; i < count; ++i) {
    const std::string flag = words[i];
    if (flag == "--help" || flag == "-h") {
      options.help = true;
      continue;
    }
    const auto setter = setters.find(flag);
    if (setter == setters.end())
      throw UsageError("unknown argument '" + flag + "'; --help lists what there is");
    if (i + 1 == count) throw UsageError(flag + " needs a value after it");
    setter->second(flag, words[++i]);
  }
  return options;
}

std::string help_text() {
  return "usage: penstock run -np 4 --config FILE -- penstock-libtorch-digits [OPTIONS]\n"
         "\n"
         "Trains a network of three layers on scikit-learn's digits with libtorch, each rank on "
         "batches\n"
         "of its own, gradients averaged by Penstock. Alone it is one rank.\n"
         "\n"
         "  --data FILE      the digits, as export_digits.py writes them (build/data/digits.bin)\n"
         "  --steps N        how many steps (100)\n"
         "  --images N       images per rank and step (32)\n"
         "  --rate R         learning rate of SGD (0.1)\n"
         "  --momentum M     momentum of SGD (0); leave it where the scheme has its own, as dgc\n"
         "  --seed N         of the first weights and the batches (1)\n"
         "  --initial FILE   begin with these weights: float32, one parameter after the other\n"
         "  --losses FILE    write the loss of rank 0 in every step, as JSON\n"
         "  --weights FILE   write the weights at the end, like --initial\n"
         "  --help           this text\n";
}

}  // namespace digits
