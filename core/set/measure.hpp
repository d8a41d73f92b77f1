// What a set measures about itself while it runs, for schedulers that plan from it.
#pragma once

#include "core/plan/planner.hpp"
#include "core/plugin/instances.hpp"

#include <map>
#include <string>
#include <vector>

namespace penstock {

class BucketRun;

// A line y = fixed + per_element * x through what was seen, both at least 0.
class FittedLine {
 public:
  void add(double x, double y);
  double per_element() const;
  double fixed() const;
  uint64_t count() const { return n_; }

 private:
  uint64_t n_ = 0;
  double sum_x_ = 0, sum_y_ = 0, sum_xx_ = 0, sum_xy_ = 0;
};

// What the calls of one compressor take: compensate and encode, decode, by elements per bucket.
struct CallLines {
  FittedLine encode, decode;
};

// Sums since the last observation. [control]
class MeasuredTimes {
 public:
  void begin(size_t n_gradients, size_t n_buckets);
  void add_ready(size_t gradient, double after_first_us);
  void add_bucket(size_t number, const BucketRun& bucket);
  void add_step(double step_us, double backward_us, double exposed_us);

  // One rank's means as numbers, in a form that is the same length on every rank.
  std::vector<double> to_numbers() const;
  // The mean over ranks of what they sent; rank_backward_us keeps them apart. An exchange waits for
  // the slowest rank, so what is planned on is when a gradient is ready there.
  struct Means {
    uint64_t n_steps = 0;
    double step_us = 0, backward_us = 0, exposed_us = 0;
    std::vector<double> ready_us, exchange_us, rank_backward_us, slowest_ready_us;
    double slowest_backward_us = 0;
  };
  Means join(const std::vector<std::vector<double>>& ranks) const;

  bool any() const { return n_steps_ > 0; }
  // Null for a compressor instance that has not run yet.
  const CallLines* lines(const std::string& compressor) const;

 private:
  // What a bucket's calls to one compressor took. Buckets have few compressors, nearly always one.
  struct Calls {
    CompressorInstance* compressor;
    bool any = false;  // none for gradients that pass through: their lines stay at zero
    double elements = 0, encode_us = 0, decode_us = 0;
  };

  std::vector<Calls> calls_;  // of the bucket that is added: kept, so that a step allocates nothing
  uint64_t n_steps_ = 0;
  double step_us_ = 0, backward_us_ = 0, exposed_us_ = 0;
  std::vector<double> ready_us_, exchange_us_;
  std::map<std::string, CallLines> lines_;  // by compressor instance; kept over observations
};

}  // namespace penstock
