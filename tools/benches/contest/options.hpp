// The command line of bench_schedulers: pairs of a name and a value.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

namespace penstock::bench {

// Ends the program because the named option or file is wrong.
[[noreturn]] inline void refuse(const std::string& what) {
  std::fprintf(stderr, "bench_schedulers: %s\n", what.c_str());
  std::_Exit(2);
}

class Options {
 public:
  Options(int argc, char** argv) {
    for (int i = 1; i + 1 < argc; i += 2) texts_[argv[i]] = argv[i + 1];
    if (argc % 2 == 0)
      refuse(fmt::format("{} has no value, expected --name value", argv[argc - 1]));
    for (const auto& [name, text] : texts_)
      if (!numbers_.contains(name) && !files_.contains(name))
        refuse(fmt::format("there is no option {}; see the head of schedulers_bench.cpp", name));
  }
  // Empty if the option was not given and is optional.
  std::string text(const std::string& name) const {
    const auto found = texts_.find(name);
    if (found != texts_.end()) return found->second;
    if (files_.at(name)) refuse(fmt::format("expected {} and a file", name));
    return {};
  }
  double number(const std::string& name) const {
    const auto found = texts_.find(name);
    if (found == texts_.end()) return numbers_.at(name);
    char* end = nullptr;
    const double value = std::strtod(found->second.c_str(), &end);
    if (*end != 0 || !std::isfinite(value))
      refuse(fmt::format("{} is {}, expected a number", name, found->second));
    return value;
  }

 private:
  std::map<std::string, std::string> texts_;
  std::map<std::string, bool> files_{// and whether it is required
                                     {"--gradients", true},
                                     {"--contestants", true},
                                     {"--timeline", false}};
  std::map<std::string, double> numbers_{
      {"--backward-ms", 200}, {"--forward-ms", 0}, {"--rounds", 7},       {"--steps", 3},
      {"--warm-up", 30},      {"--slow-rank", -1}, {"--slow-factor", 1.3}};
};

}  // namespace penstock::bench
