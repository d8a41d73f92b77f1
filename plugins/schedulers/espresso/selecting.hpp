// Espresso's selection: which strategy leaves least of the exchange exposed.
#pragma once

#include "strategies.hpp"

namespace espresso {

struct Selection {
  Strategy strategy;
  double exposed_us = 0;
  double dense_us = 0;   // of the best strategy that sends all dense by one route
  uint64_t n_tried = 0;  // strategies that were forecast
};

// Greedy: from the best dense strategy on, large units first, a class of equal size at a time and
// within it those that are ready last; each change must shorten what is exposed. Never behind a
// strategy in which all units that can go out one way.
Selection select(const Strategies& strategies);

}  // namespace espresso
