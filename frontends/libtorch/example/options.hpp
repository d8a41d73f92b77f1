// The command line of the example.
#ifndef PENSTOCK_LIBTORCH_EXAMPLE_OPTIONS_HPP
#define PENSTOCK_LIBTORCH_EXAMPLE_OPTIONS_HPP

#include <cstdint>
#include <stdexcept>
#include <string>

namespace digits {

struct Options {
  std::string data = "build/data/digits.bin";
  std::string initial;  // a file of weights to begin with; empty: torch's own, of the seed
  std::string losses;   // where the losses go; empty: nowhere
  std::string weights;  // where the weights go at the end; empty: nowhere
  std::int64_t steps = 100;
  std::int64_t images = 32;  // per rank and step
  std::uint64_t seed = 1;
  double rate = 0.1;
  double momentum = 0.0;
  bool help = false;
};

// What the user typed is wrong; the message says what is expected.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws UsageError.
Options read_options(int count, const char* const* words);

std::string help_text();

}  // namespace digits

#endif  // PENSTOCK_LIBTORCH_EXAMPLE_OPTIONS_HPP
