// The profile of a model in training, as `penstock plan --model FILE` reads it (docs/plan.md): its
// gradients, the times at which they become ready, and the time of a step outside backward.
#pragma once

#include "core/base/status.hpp"
#include "core/fit/gradient.hpp"

#include <span>
#include <string>
#include <vector>

namespace penstock {

// All functions are [control]. Times are medians over the last steps, because the first steps
// allocate buffers and fill caches.
class ModelRecord {
 public:
  static constexpr size_t kSteps = 20;  // number of steps whose medians are written

  // `set`: the name shown to users.
  ModelRecord(std::string path, std::string set, std::vector<DeclaredGradient> gradients);

  // Adds a step. `ready_us`: the time of each gradient after the first gradient, negative if it
  // took no part; `outside_us`: from the end of the previous step to the first gradient, negative
  // in the first step.
  void add(std::span<const double> ready_us, double outside_us);
  // True once: the file should be written although the run continues.
  bool is_due();
  std::string text() const;
  // FAILED_PRECONDITION if the file cannot be written.
  Status write() const;
  const std::string& path() const { return path_; }

 private:
  // The last values, in a ring.
  struct Recent {
    std::vector<double> values;
    size_t next = 0;
    void add(double value);
    double median() const;  // 0 where there is none
  };

  std::string path_, set_;
  std::vector<DeclaredGradient> gradients_;
  std::vector<Recent> ready_;  // by gradient
  Recent outside_;
  uint64_t n_steps_ = 0;
};

}  // namespace penstock
