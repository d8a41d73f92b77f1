// The choices of Espresso: each unit gets a way, which is a compressor and a route.
#pragma once

#include <planning/forecast.hpp>
#include <planning/plan.hpp>

#include <penstock/scheduler.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace espresso {

struct Way {
  std::string compressor;  // name of a candidate
  uint32_t route;          // PENSTOCK_ROUTE_*
};

// The gradients for which one choice is made: one gradient; or small gradients that are ready one
// after the other, which stay dense; or a bucket that the frontend gave.
struct Unit {
  std::vector<uint64_t> gradients;
  uint64_t numel = 0;
  bool is_small = false;
};

using Strategy = std::vector<size_t>;  // by unit: index into the ways

// The strategies of a model, and the time that each strategy takes. The model must outlive this
// object, its candidates must be measured, and `dense` must be a candidate.
class Strategies {
 public:
  // Gradients of fewer than `small` elements count as small.
  Strategies(const penstock_model& model, std::string_view dense, uint64_t small);

  // In order of readiness.
  const std::vector<Unit>& units() const { return units_; }
  // Ways with the dense compressor come first.
  const std::vector<Way>& ways() const { return ways_; }
  size_t n_dense() const { return n_dense_; }
  // Whether the unit can take this way. A unit that can take no way travels with its configured
  // compressors on the route of way 0.
  bool takes(size_t unit, size_t way) const { return open_[unit][way]; }
  // Gives every unit `way`. A unit that cannot take `way` gets `otherwise`, or else way 0.
  Strategy all(size_t way, size_t otherwise) const;

  penstock::planning::Plan plan_of(const Strategy& strategy) const;
  // The forecast time that is exposed after backward, in microseconds, mean over phases.
  double exposed_us(const Strategy& strategy) const;
  // The number of first units whose exchange begins before the link is idle for the last time.
  // Compressing these units more shortens nothing.
  size_t n_hidden(const Strategy& strategy) const;

 private:
  void find_units(uint64_t small);
  void add(Unit& unit, uint64_t gradient) const;
  void find_ways(std::string_view dense);
  penstock::planning::Forecast forecast(const penstock::planning::Plan& plan, uint32_t phase) const;

  const penstock_model& model_;
  std::vector<Unit> units_;
  std::vector<Way> ways_;
  size_t n_dense_ = 0;
  std::vector<std::vector<bool>> open_;  // [unit][way]
};

}  // namespace espresso
