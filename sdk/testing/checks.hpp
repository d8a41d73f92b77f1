// What every compressor and every memory must do, as a list of named checks on awkward shapes: what
// `penstock check` runs, and what a plugin's own test may:
//
//   run_checks(load_plugin("build/compressor-mine.so"), {{"density", 0.1}});
#pragma once

#include <functional>
#include <testing/plugin.hpp>

namespace penstock::test {

struct Check {
  struct Found {
    bool skipped = false;
    std::string note;  // why it was skipped, or what is worth knowing
  };
  std::string name;
  // Throws BrokenPromise, or std::runtime_error with the plugin's own message where it refuses.
  std::function<Found(const LoadedPlugin& plugin, const OptionSettings& options)> run;
};

std::vector<Check> compressor_checks();
std::vector<Check> memory_checks();
// Those of the plugin's kind, one after the other; what the first one throws begins with its name.
// Throws std::invalid_argument for collectives, which need peers, and schedulers, which the core
// checks: `penstock check` knows more of those.
void run_checks(const LoadedPlugin& plugin, const OptionSettings& options = {});

}  // namespace penstock::test
