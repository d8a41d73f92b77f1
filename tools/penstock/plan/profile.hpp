// The profile of a model for `penstock plan`: its gradients, and the time when each is ready.
#pragma once

#include "core/base/status.hpp"
#include "core/fit/gradient.hpp"

#include <string>
#include <vector>

namespace penstock::command {

// A profile. Times are microseconds on one rank.
struct ModelProfile {
  std::string name;
  std::string about;                        // the source of the numbers
  std::vector<DeclaredGradient> gradients;  // in order of registration and of forward
  std::vector<double> ready_us;             // by gradient, from the start of backward
  std::vector<double> forward_us;           // first use of each, after the start of forward
  double whole_forward_us = 0;
  double backward_us = 0;

  uint64_t parameters() const;
  // Multiplies the times of forward and of backward by a factor each, for another device or another
  // number of samples.
  void scale(double forward, double backward);
};

// Loads a shipped model by its name, or else a file (docs/plan.md has the format). NOT_FOUND names
// the most similar name; INVALID_ARGUMENT names file and line.
Result<ModelProfile> load_profile(const std::string& name_or_file);

}  // namespace penstock::command
