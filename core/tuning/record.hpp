// The profile of a model that trains, as `penstock plan --model FILE` reads it (docs/plan.md): its
// gradients, when they become ready, and how long a step takes beside backward.
#pragma once

#include "core/base/status.hpp"
#include "core/fit/gradient.hpp"

#include <span>
#include <string>
#include <vector>

namespace penstock {

// All functions are [control]. Medians over the last steps: the first make buffers and fill caches.
class ModelRecord {
 public:
  static constexpr size_t kSteps = 20;  // whose medians are written

  // `set` for people.
  ModelRecord(std::string path, std::string set, std::vector<DeclaredGradient> gradients);

  // A step. `ready_us`: of each gradient after the first one, negative where it took no part;
  // `outside_us`: from the end of the step before to the first gradient, negative in the first.
  void add(std::span<const double> ready_us, double outside_us);
  // True once: the file should be written although the run goes on.
  bool is_due();
  std::string text() const;
  // FAILED_PRECONDITION where the file cannot be written.
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
