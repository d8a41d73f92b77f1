// What Espresso chooses among: for each unit a way, which is a compressor and a route.
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

// What is chosen for together: a gradient; or small ones that are ready one after the other, which
// stay dense; or a bucket that the frontend gave.
struct Unit {
  std::vector<uint64_t> gradients;
  uint64_t numel = 0;
  bool is_small = false;
};

using Strategy = std::vector<size_t>;  // by unit: index into the ways

// A model as a set of strategies, and what each of them takes. The model must outlive it, its
// candidates be measured, and `dense` be one of them.
class Strategies {
 public:
  // Gradients of fewer than `small` elements count as small.
  Strategies(const penstock_model& model, std::string_view dense, uint64_t small);

  // In order of readiness.
  const std::vector<Unit>& units() const { return units_; }
  // The dense ones first.
  const std::vector<Way>& ways() const { return ways_; }
  size_t n_dense() const { return n_dense_; }
  // Whether the unit can go out so. One way at least is open to each unit: dense.
  bool takes(size_t unit, size_t way) const { return open_[unit][way]; }
  // Every unit `way`; where it cannot, the way `otherwise`.
  Strategy all(size_t way, size_t otherwise) const;

  penstock::planning::Plan plan_of(const Strategy& strategy) const;
  // Forecast: exposed behind backward, in microseconds, mean over phases.
  double exposed_us(const Strategy& strategy) const;
  // How many units, the first ones, are on their way before the link idles for the last time: what
  // is left out of them shortens nothing.
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
