// What every run of neighbours costs that could be a bucket: the table that both searches read.
#pragma once

#include <penstock/scheduler.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace optimal {

// All times in microseconds, as planning::forecast counts them.
struct Run {
  double ready = 0;  // its last gradient
  double encode = 0;
  double exchange = 0;  // in backward
  double decode = 0;
  double gather = 0;  // route split: in the next forward
  double needed = 0;  // route split: after the start of that, by its most urgent gradient
};

// What is sent in a phase on a route: gradients in order of readiness, and when each is ready.
struct Sent {
  Sent(const penstock_model& model, uint32_t phase, uint32_t route);

  const penstock_model& model;
  uint32_t phase;
  uint32_t route;
  std::vector<uint64_t> gradients;
  std::vector<double> ready;  // never falls
  // Those from place `begin` up to place `end`, which comes later. Place p is before gradient p.
  Run run(uint64_t begin, uint64_t end) const;
};

// Runs that begin and end at given places. They are named by the index of a place, not by the
// place.
class Runs {
 public:
  // `places` rise; there are two at least.
  Runs(const Sent& sent, std::vector<uint64_t> places);

  // Parts between two places that are neighbours.
  uint32_t n_parts() const { return static_cast<uint32_t>(places_.size() - 1); }
  uint64_t place(uint32_t index) const { return places_[index]; }
  // From place `begin` up to place `end`, which comes later.
  const Run& at(uint32_t begin, uint32_t end) const { return runs_[begin * n_parts() + end - 1]; }

 private:
  std::vector<uint64_t> places_;
  std::vector<Run> runs_;  // [begin][end - 1]; those with end <= begin are not filled
};

// How many ways to cut what is before a place a search may keep open, if it is to take so many
// steps from a way to a longer one; a million takes a tenth of a second or less.
constexpr uint32_t most_ways(uint32_t n_parts, uint32_t n_steps) {
  return std::max(8u, 2 * n_steps / (n_parts * (n_parts + 1)));
}

// What a search found: the indices of places where its buckets end, in order.
struct Cut {
  std::vector<uint32_t> ends;  // empty: none was found that is better than what was known before
  bool is_proven = false;      // no cut at these places is better than this, or than that
};

}  // namespace optimal
