// The costs of every run of neighbouring gradients that could be a bucket: the table that both
// searches read.
#pragma once

#include <penstock/scheduler.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace optimal {

// All times in microseconds, as planning::forecast counts them.
struct Run {
  double ready = 0;  // when its last gradient is ready
  double encode = 0;
  double exchange = 0;  // the message in backward
  double decode = 0;
  double gather = 0;  // route split: the message in the next forward
  // route split: when forward needs its most urgent gradient, after the start of forward
  double needed = 0;
};

// The gradients that are sent in a phase on a route, in order of readiness, and when each is ready.
struct Sent {
  Sent(const penstock_model& model, uint32_t phase, uint32_t route);

  const penstock_model& model;
  uint32_t phase;
  uint32_t route;
  std::vector<uint64_t> gradients;
  std::vector<double> ready;  // never falls
  // The run from place `begin` up to place `end`; `end` must be larger. Place p lies before
  // gradient p.
  Run run(uint64_t begin, uint64_t end) const;
};

// Runs that begin and end at given places. Functions take the index of a place, not the place.
class Runs {
 public:
  // `places` must ascend; there must be at least two.
  Runs(const Sent& sent, std::vector<uint64_t> places);

  // The number of parts between neighbouring places.
  uint32_t n_parts() const { return static_cast<uint32_t>(places_.size() - 1); }
  uint64_t place(uint32_t index) const { return places_[index]; }
  // The run from place `begin` up to place `end`; `end` must be larger.
  const Run& at(uint32_t begin, uint32_t end) const { return runs_[begin * n_parts() + end - 1]; }

 private:
  std::vector<uint64_t> places_;
  std::vector<Run> runs_;  // [begin][end - 1]; entries with end <= begin are not filled
};

// How many ways to cut the gradients before a place a search may keep, if it may take `n_steps`
// steps from a way to a longer way. A million steps take a tenth of a second or less.
constexpr uint32_t most_ways(uint32_t n_parts, uint32_t n_steps) {
  return std::max(8u, 2 * n_steps / (n_parts * (n_parts + 1)));
}

// The result of a search: the indices of the places where its buckets end, in order.
struct Cut {
  std::vector<uint32_t> ends;  // empty: no cut was found that is better than the known cut
  // no cut at these places is better than this cut, or than the known cut
  bool is_proven = false;
};

}  // namespace optimal
