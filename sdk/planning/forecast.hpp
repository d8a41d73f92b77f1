// Predicts the times of a plan on a model, as a pure function.
//
// Three things run in parallel, as in the runtime: backward, which makes gradients ready and is
// never delayed; one engine, which encodes and decodes, one job at a time, decode before encode and
// the earlier bucket first; and one ordered link, which carries buckets one after the other in the
// order of the plan. With no encode and decode times this is the recursion of wait-free
// back-propagation,
//   start[b] = max(start[b-1] + exchange[b-1], ready[b]).
// On route split the link carries the reduce-scatters in backward and the all-gathers in the next
// forward, the last bucket first, each at half the cost.
#pragma once

#include "planning/plan.hpp"

#include <functional>
#include <vector>

namespace penstock::planning {

// All times in microseconds from the start of backward.
struct BucketTimes {
  uint64_t bucket = 0;  // index into Plan::buckets
  double ready = 0;     // its last gradient
  double encode_start = 0;
  double encode_end = 0;
  double exchange_start = 0;  // route split: of the reduce-scatter
  double exchange_end = 0;
  double gather_start =
      0;  // route split: of the all-gather in the next forward; otherwise exchange_end
  double gather_end = 0;
  double decode_start = 0;
  double decode_end = 0;
};

struct Forecast {
  std::vector<BucketTimes> buckets;  // of the phase, in order of priority
  double backward_end = 0;
  double forward_start = 0;  // when the application continues: all work of backward is done
  double end = 0;            // when the last bucket is decoded
  double exposed_us = 0;  // how long the application waits: after backward and in the next forward
  double encode_us = 0;   // totals
  double decode_us = 0;
  double exchange_us = 0;
  double bytes = 0;  // sent by one rank
};

// The forecast of one phase of the plan. Pieces must name gradients and candidates of the model.
// Unmeasured times count as zero, so an unmeasured model gives an empty forecast, not an error.
Forecast forecast(const Plan& plan, const penstock_model& model, uint32_t phase = 0);

// The times of a bucket's exchange in backward and, on route split, in the next forward. The shares
// are one rank's part of the time that the compressors' lines give, on a route that divides the
// coding among ranks.
struct ExchangeTimes {
  double backward_us = 0;
  double forward_us = 0;
  double encode_share = 1;
  double decode_share = 1;
};
// By index into Plan::buckets.
using ExchangeOf = std::function<ExchangeTimes(uint64_t bucket)>;
// As above, with exchange times from `exchange_of` instead of the model's lines: for simulators,
// which model routes and clusters more exactly than by one line.
Forecast forecast(const Plan& plan, const penstock_model& model, uint32_t phase,
                  const ExchangeOf& exchange_of);

// The exposed time of the plan in microseconds, the mean over its phases.
double exposed_us(const Plan& plan, const penstock_model& model);

}  // namespace penstock::planning
