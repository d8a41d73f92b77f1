// The rules of every compressor and every memory, as a list of named checks on awkward shapes.
// `penstock check` runs them, and a plugin's own test may run them too:
//
//   run_checks(load_plugin("build/compressor-mine.so"), {{"density", 0.1}});
#pragma once

#include <functional>
#include <testing/plugin.hpp>

namespace penstock::test {

struct Check {
  struct Found {
    bool skipped = false;
    std::string note;  // the reason for skipping, or a remark
  };
  std::string name;
  // Throws BrokenPromise, or if the plugin refuses, std::runtime_error with the plugin's message.
  std::function<Found(const LoadedPlugin& plugin, const OptionSettings& options)> run;
};

std::vector<Check> compressor_checks();
std::vector<Check> memory_checks();
// Runs the checks of the plugin's kind, one after the other. Stops at the first failed check and
// throws an error whose text begins with the name of the check. Throws std::invalid_argument for
// collectives, which need peers, and for schedulers, which the core checks: `penstock check` also
// checks these two.
void run_checks(const LoadedPlugin& plugin, const OptionSettings& options = {});

}  // namespace penstock::test
