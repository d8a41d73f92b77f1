// Partial sparsification: decides which gradients of a bucket stay dense.
#pragma once

#include <penstock/scheduler.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace partial {

struct Choices {
  std::vector<uint32_t> of;  // per gradient of the bucket: index of its candidate
  uint64_t n_dense = 0;
  double time_us = 0;         // encode, exchange and decode, summed over phases
  double sparse_time_us = 0;  // this time if no gradient is dense
};

// Returns the cheapest of these choices for a bucket: for a size v, gradients of at most v elements
// stay dense and larger gradients are compressed. v is nothing or the size of a gradient of the
// bucket, so gradients of equal size get equal choices; among equal costs the smallest v wins. With
// `within_budget` all dense gradients together send at most as many bytes as the compressed bucket
// would. Gradients without the candidate `dense` keep their first candidate. Source: ADTopk,
// partial sparsification; times come from the measured lines instead of tables.
Choices choose(const penstock_model& model, const std::vector<uint64_t>& bucket,
               std::string_view dense, bool within_budget);

}  // namespace partial
