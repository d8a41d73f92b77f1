// Espresso's selection of the strategy that leaves the least exchange time exposed.
#pragma once

#include "strategies.hpp"

namespace espresso {

struct Selection {
  Strategy strategy;
  double exposed_us = 0;
  double dense_us = 0;   // exposed time of the best strategy that sends all dense by one route
  uint64_t n_tried = 0;  // strategies whose times were forecast
};

// A greedy search from the best dense strategy, large units first: a class of similar size at a
// time, and within it the units that are ready last. Each change must shorten the exposed time. The
// result is never worse than a strategy in which all units that can take one way take it.
Selection select(const Strategies& strategies);

}  // namespace espresso
