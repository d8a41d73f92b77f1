#include "expectation.hpp"

#include <algorithm>
#include <cmath>

#include <planning/cost.hpp>

namespace rgmerge {

using penstock::planning::usable;

namespace {

// A difference in exposed time below this share of a step is noise, whatever its ratio.
constexpr double kNoise = 0.05;

}  // namespace

void Expectation::expect(double forecast_us, bool measured) {
  forecast_us_ = usable(forecast_us);
  measured_ = measured;
  settled_us_ = -1;
  apart_ = 0;
}

bool Expectation::are_apart(double a_us, double b_us, double step_us) const {
  const auto [least, most] = std::minmax(a_us, b_us);
  return most > factor_ * least && most - least > kNoise * step_us;
}

uint32_t Expectation::decide(const penstock_measurement& measurement) {
  if (!measured_) return PENSTOCK_MAKE_NEW_PLAN;
  const double exposed = usable(measurement.exposed_us);
  const double step = usable(measurement.step_us);
  if (settled_us_ < 0) {
    settled_us_ = exposed;
    if (refinements_ == kRefinements || !are_apart(exposed, forecast_us_, step))
      return PENSTOCK_KEEP_PLAN;
    ++refinements_;
    return PENSTOCK_MAKE_NEW_PLAN;
  }
  apart_ = are_apart(exposed, settled_us_, step) ? apart_ + 1 : 0;
  if (apart_ < looks_) return PENSTOCK_KEEP_PLAN;
  refinements_ = 0;
  return PENSTOCK_MAKE_NEW_PLAN;
}

}  // namespace rgmerge
