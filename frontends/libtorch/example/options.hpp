// The command line of an example.
#ifndef PENSTOCK_LIBTORCH_EXAMPLE_OPTIONS_HPP
#define PENSTOCK_LIBTORCH_EXAMPLE_OPTIONS_HPP

#include <cstdint>
#include <stdexcept>
#include <string>

namespace example {

// What the examples differ in.
struct Program {
  std::string name;     // penstock-libtorch-...
  std::string purpose;  // lines of the help
  std::string data;     // where it lies by default
  std::string samples;  // of which a rank sees some in a step: "images"
  std::int64_t n_samples;
  double rate;
};

struct Options {
  std::string data;
  std::string initial;  // a file of weights to begin with; empty: torch's own, of the seed
  std::string losses;   // where the losses go; empty: nowhere
  std::string weights;  // where the weights go at the end; empty: nowhere
  std::int64_t steps = 100;
  std::int64_t samples = 1;  // per rank and step
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
Options read_options(const Program& program, int count, const char* const* words);

std::string help_text(const Program& program);

}  // namespace example

#endif  // PENSTOCK_LIBTORCH_EXAMPLE_OPTIONS_HPP
