// What a set measures about itself while it runs, for schedulers that plan from it.
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

// Of one step.
struct StepTimes {
  uint64_t first_ready_us = 0, last_ready_us = 0;
  double waited_us = 0;  // by the application, in this step
};

// A line y = fixed + per_element * x through what was seen, both at least 0.
class FittedLine {
 public:
  void add(double x, double y);
  double per_element() const;
  double fixed() const;
  uint64_t count() const { return n_; }
  bool has_several_sizes() const { return n_ > 1 && spread() > 0; }
  // Where a line of this slope is at 0, if it is to leave as much above as below.
  double fixed_at(double per_element) const;

 private:
  double spread() const { return double(n_) * sum_xx_ - sum_x_ * sum_x_; }
  uint64_t n_ = 0;
  double sum_x_ = 0, sum_y_ = 0, sum_xx_ = 0, sum_xy_ = 0;
};

// What a call takes: the line through the steps where their buckets had several sizes; else with
// the slope of the probes, through what the steps took; before any step the probes'.
struct CostLine {
  FittedLine steps, probes;
  double per_element() const { return (steps.has_several_sizes() ? steps : probes).per_element(); }
  double fixed() const;
};

// What the calls of one compressor take: compensate and encode, decode, by elements per bucket.
struct CallLines {
  CostLine encode, decode;
};

// Sums since the last observation. [control]
class MeasuredTimes {
 public:
  // Steps of which the exchanges are kept one by one, so that the wire can be told from the wait.
  static constexpr size_t kSamples = 16;

  // `n_buckets`: of each phase.
  void begin(size_t n_gradients, const std::vector<size_t>& n_buckets);
  void add_ready(size_t gradient, double after_first_us);
  // Of one forward: negative where it did not use the gradient's parameter.
  void add_forward(std::span<const double> first_use_us, double whole_us);
  void add_bucket(uint32_t phase, size_t number, const BucketRun& bucket);
  void add_step(double step_us, double backward_us, double exposed_us);

  // What a rank tells the others: to be added up and to be compared, element by element. Of the
  // same lengths on every rank, and nothing in it grows with ranks but one number for each.
  struct Numbers {
    std::vector<float> sums, maxima;
  };
  Numbers numbers(uint32_t rank, uint32_t world) const;
  // Means over ranks; rank_backward_us keeps them apart. An exchange waits for the slowest rank, so
  // what is planned on is when a gradient is ready there.
  struct Means {
    uint64_t n_steps = 0;
    double step_us = 0, backward_us = 0, exposed_us = 0, slowest_backward_us = 0;
    std::vector<double> ready_us, slowest_ready_us;
    std::vector<double> forward_us;  // negative where a rank does not know; empty: none was told
    double whole_forward_us = 0;
    std::vector<double> exchange_us, wire_us, wait_us;  // of all phases, one after the other
    std::vector<uint64_t> phase_first;                  // where each begins, and the end
    std::vector<double> rank_backward_us;
  };
  // `reduced`: the sums and maxima over all ranks.
  Means means(const Numbers& reduced, uint32_t world) const;

  // What a call to a compressor took outside the steps, on a device or not.
  void add_probe(const std::string& compressor, bool on_device, double elements, double encode_us,
                 double decode_us);

  bool any() const { return n_steps_ > 0; }
  // Null for a compressor instance that has neither run nor been probed there.
  const CallLines* lines(const std::string& compressor, bool on_device) const;

 private:
  // What a bucket's calls to one compressor took in one place. Buckets have few compressors, nearly
  // always one.
  struct Calls {
    CompressorInstance* compressor;
    bool on_device;
    bool any = false;  // none for gradients that pass through: their lines stay at zero
    double elements = 0, encode_us = 0, decode_us = 0;
  };
  struct Mean {
    double sum = 0;
    uint64_t n = 0;
    void add(double value) { sum += value, ++n; }
    double value() const { return n == 0 ? 0 : sum / double(n); }
  };
  // The last exchanges of a bucket. Whether it ran, and was not void, all ranks know alike.
  struct Exchanges {
    Mean all;
    std::array<float, kSamples> last_us;
    size_t n_kept() const { return std::min<uint64_t>(all.n, kSamples); }
    double kept_us() const;
    void add(double us);
  };
  void add_calls(const BucketRun& bucket);

  std::vector<Calls> calls_;  // of the bucket that is added: kept, so that a step allocates nothing
  uint64_t n_steps_ = 0;
  double step_us_ = 0, backward_us_ = 0, exposed_us_ = 0;
  std::vector<Mean> ready_, forward_;
  Mean whole_forward_;
  std::vector<Exchanges> exchanges_;
  std::vector<uint64_t> phase_first_;
  // By compressor instance, on the CPU and on a device; kept over observations.
  std::array<std::map<std::string, CallLines>, 2> lines_;
};

}  // namespace penstock
