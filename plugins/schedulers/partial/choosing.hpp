// Partial sparsification: which gradients of a bucket stay dense.
#pragma once

#include <penstock/scheduler.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace partial {

struct Choices {
  std::vector<uint32_t> of;  // per gradient of the bucket: index into its candidates
  uint64_t n_dense = 0;
  double time_us = 0;         // encode, exchange and decode, summed over phases
  double sparse_time_us = 0;  // the same with no gradient dense
};

// The cheapest of these choices for a bucket: for a size v, gradients of at most v elements stay
// dense and larger ones are compressed. v is nothing or the size of a gradient of the bucket, so
// equal sizes go together; among equals the smallest v wins. With `within_budget` all dense
// gradients together hand over no more bytes than the compressed bucket would. Gradients without
// the candidate `dense` keep their first. Source: ADTopk, partial sparsification; the time is that
// of the measured lines instead of tables.
Choices choose(const penstock_model& model, const std::vector<uint64_t>& bucket,
               std::string_view dense, bool within_budget);

}  // namespace partial
