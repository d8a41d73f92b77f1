// What `penstock plan` knows of a model: its gradients, and when each is ready.
#pragma once

#include "core/base/status.hpp"
#include "core/fit/gradient.hpp"

#include <string>
#include <vector>

namespace penstock::command {

// Times are microseconds on one rank.
struct ModelProfile {
  std::string name;
  std::string about;                        // where the numbers come from
  std::vector<DeclaredGradient> gradients;  // in order of registration, which is that of forward
  std::vector<double> ready_us;             // of each, after the start of backward
  std::vector<double> forward_us;           // first use of each, after the start of forward
  double whole_forward_us = 0;
  double backward_us = 0;

  uint64_t parameters() const;
  // Every time of this rank by `forward` and `backward`: another device or number of samples.
  void scale(double forward, double backward);
};

// A shipped model by its name, or else a file (docs/plan.md has the format). NOT_FOUND names the
// nearest; INVALID_ARGUMENT file and line.
Result<ModelProfile> load_profile(const std::string& name_or_file);

}  // namespace penstock::command
