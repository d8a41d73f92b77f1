// The times that a set measures about itself while it runs, for schedulers that plan from them.
#pragma once

#include "core/plan/planner.hpp"
#include "core/plugin/instances.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace penstock {

class BucketRun;

// The times of one step.
struct StepTimes {
  uint64_t first_ready_us = 0, last_ready_us = 0;
  double waited_us = 0;  // time that the application waited in this step
};

// A least-squares line y = fixed + per_element * x through the samples; both coefficients are at
// least 0.
class FittedLine {
 public:
  void add(double x, double y);
  double per_element() const;
  double fixed() const;
  uint64_t count() const { return n_; }
  bool has_several_sizes() const { return n_ > 1 && spread() > 0; }
  // The constant of a line with this slope whose errors add up to zero over the samples.
  double fixed_at(double per_element) const;

 private:
  double spread() const { return double(n_) * sum_xx_ - sum_x_ * sum_x_; }
  uint64_t n_ = 0;
  double sum_x_ = 0, sum_y_ = 0, sum_xx_ = 0, sum_xy_ = 0;
};

// The time of a call. If the buckets of the steps had several sizes: the line through the steps.
// Otherwise the slope is from the probes, and the constant fits the steps; before any step, both
// are from the probes.
struct CostLine {
  FittedLine steps, probes;
  double per_element() const { return (steps.has_several_sizes() ? steps : probes).per_element(); }
  double fixed() const;
};

// The times of the calls of one compressor (compensate and encode; decode) by elements per bucket.
struct CallLines {
  CostLine encode, decode;
};

// Sums of all times since the last observation. [control]
class MeasuredTimes {
 public:
  // The number of steps whose exchanges are kept one by one, to separate the time on the wire from
  // waiting time.
  static constexpr size_t kSamples = 16;

  // `n_buckets`: buckets of each phase.
  void begin(size_t n_gradients, const std::vector<size_t>& n_buckets);
  void add_ready(size_t gradient, double after_first_us);
  // Times of one forward pass: negative if it did not use the gradient's parameter.
  void add_forward(std::span<const double> first_use_us, double whole_us);
  void add_bucket(uint32_t phase, size_t number, const BucketRun& bucket);
  void add_step(double step_us, double backward_us, double exposed_us);

  // The numbers that a rank sends to the others: `sums` are added and `maxima` are compared,
  // element by element. They have equal lengths on every rank and grow by only one number for each
  // rank.
  struct Numbers {
    std::vector<float> sums, maxima;
  };
  Numbers numbers(uint32_t rank, uint32_t world) const;
  // Means over ranks; only rank_backward_us has a value for each rank. An exchange waits for the
  // slowest rank, so plans use the time at which a gradient is ready on that rank.
  struct Means {
    uint64_t n_steps = 0;
    double step_us = 0, backward_us = 0, exposed_us = 0, slowest_backward_us = 0;
    std::vector<double> ready_us, slowest_ready_us;
    // Negative if a rank does not know it; empty: no rank knows any.
    std::vector<double> forward_us;
    double whole_forward_us = 0;
    std::vector<double> exchange_us, wire_us, wait_us;  // all phases, one after another
    // Index of each phase's first bucket, and the end.
    std::vector<uint64_t> phase_first;
    std::vector<double> rank_backward_us;
  };
  // `reduced`: the sums and maxima over all ranks.
  Means means(const Numbers& reduced, uint32_t world) const;

  // Adds the time of a call to a compressor outside the steps, on a device or on the CPU.
  void add_probe(const std::string& compressor, bool on_device, double elements, double encode_us,
                 double decode_us);

  bool any() const { return n_steps_ > 0; }
  // Null for a compressor instance that has neither run nor been probed in this place.
  const CallLines* lines(const std::string& compressor, bool on_device) const;

 private:
  // The times of a bucket's calls to one compressor in one place. Nearly all buckets have one
  // compressor.
  struct Calls {
    CompressorInstance* compressor;
    bool on_device;
    bool any = false;  // false for gradients that pass through: their lines stay zero
    double elements = 0, encode_us = 0, decode_us = 0;
  };
  struct Mean {
    double sum = 0;
    uint64_t n = 0;
    void add(double value) { sum += value, ++n; }
    double value() const { return n == 0 ? 0 : sum / double(n); }
  };
  // The last exchanges of a bucket. All ranks agree on whether the bucket ran and was not void.
  struct Exchanges {
    Mean all;
    std::array<float, kSamples> last_us;
    size_t n_kept() const { return std::min<uint64_t>(all.n, kSamples); }
    double kept_us() const;
    void add(double us);
  };
  void add_calls(const BucketRun& bucket);

  // Calls of the bucket that is being added; kept, so that a step allocates nothing.
  std::vector<Calls> calls_;
  uint64_t n_steps_ = 0;
  double step_us_ = 0, backward_us_ = 0, exposed_us_ = 0;
  std::vector<Mean> ready_, forward_;
  Mean whole_forward_;
  std::vector<Exchanges> exchanges_;
  std::vector<uint64_t> phase_first_;
  // By compressor instance, on the CPU and on a device; kept across observations.
  std::array<std::map<std::string, CallLines>, 2> lines_;
};

}  // namespace penstock
