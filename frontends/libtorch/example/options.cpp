// The command line of an example.

#include "options.hpp"

#include <charconv>
#include <functional>
#include <iomanip>
#include <map>
#include <sstream>
#include <string_view>

namespace example {
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

Options read_options(const Program& program, int count, const char* const* words) {
  Options options;
  options.data = program.data;
  options.samples = program.n_samples;
  options.rate = program.rate;
  const std::map<std::string, Setter, std::less<>> setters = {
      {"--data", text_into(options.data)},
      {"--initial", text_into(options.initial)},
      {"--losses", text_into(options.losses)},
      {"--weights", text_into(options.weights)},
      {"--steps", number_into<std::int64_t>(options.steps, 1)},
      {"--" + program.samples, number_into<std::int64_t>(options.samples, 1)},
      {"--seed", number_into<std::uint64_t>(options.seed, 0)},
      {"--rate", number_into<double>(options.rate, 0.0)},
      {"--momentum", number_into<double>(options.momentum, 0.0)},
      {"--every", number_into<std::int64_t>(options.every, 0)},
      {"--fragments", number_into<std::int64_t>(options.fragments, 1)},
      {"--delay", number_into<std::int64_t>(options.delay, 0)},
      {"--mix", number_into<double>(options.mix, 0.0)},
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
  if (options.every == 0 && (options.fragments != 1 || options.delay != 0 || options.mix != 0))
    throw UsageError("--fragments, --delay and --mix need --every, with which ranks train apart");
  return options;
}

std::string help_text(const Program& program) {
  std::ostringstream text;
  const auto line = [&](const std::string& flag, const std::string& says) {
    text << "  " << std::left << std::setw(17) << flag << says << '\n';
  };
  text << "usage: penstock run -np 4 --config FILE -- " << program.name << " [OPTIONS]\n\n"
       << program.purpose << "\n";
  line("--data FILE", "what export.py has written (" + program.data + ")");
  line("--steps N", "how many steps (100)");
  line("--" + program.samples + " N",
       "of them per rank and step (" + std::to_string(program.n_samples) + ")");
  text << "  --rate R         learning rate of SGD (" << program.rate << ")\n";
  line("--momentum M", "momentum of SGD (0); leave it where the scheme has its own, as dgc");
  line("--every N", "train apart for N steps, then exchange how far each rank moved (0: no)");
  line("--fragments N", "parts that travel in turn, with --every (1)");
  line("--delay N", "steps during which an exchange may travel, with --every (0)");
  line("--mix A", "weight of a rank's own parameter when a result arrives, with --every (0)");
  line("--seed N", "of the first weights and the batches (1)");
  line("--initial FILE", "begin with these weights: float32, one parameter after the other");
  line("--losses FILE", "write the loss of rank 0 in every step, as JSON");
  line("--weights FILE", "write the weights at the end, like --initial");
  line("--help", "this text");
  return text.str();
}

}  // namespace example
