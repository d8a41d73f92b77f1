// The command line of an example.
#ifndef PENSTOCK_LIBTORCH_EXAMPLE_OPTIONS_HPP
#define PENSTOCK_LIBTORCH_EXAMPLE_OPTIONS_HPP

#include <cstdint>
#include <stdexcept>
#include <string>

namespace example {

// The values in which the examples differ.
struct Program {
  std::string name;     // penstock-libtorch-...
  std::string purpose;  // lines of the help
  std::string data;     // the default path of the data
  std::string samples;  // the name of the samples in the help: "images"
  std::int64_t n_samples;
  double rate;
};

struct Options {
  std::string data;
  std::string initial;  // a file of initial weights; empty: torch's own, drawn from the seed
  std::string losses;   // the file for the losses; empty: they are not written
  std::string weights;  // the file for the final weights; empty: they are not written
  std::int64_t steps = 100;
  std::int64_t samples = 1;  // per rank and step
  std::uint64_t seed = 1;
  double rate = 0.1;
  double momentum = 0.0;
  std::int64_t every = 0;  // ranks train apart for so many steps; 0: they exchange every gradient
  std::int64_t fragments = 1, delay = 0;
  double mix = 0.0;
  bool help = false;
};

// The command line is wrong; the message states the expected form.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws UsageError.
Options read_options(const Program& program, int count, const char* const* words);

std::string help_text(const Program& program);

}  // namespace example

#endif  // PENSTOCK_LIBTORCH_EXAMPLE_OPTIONS_HPP
