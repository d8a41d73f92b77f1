// Where the chance of stochastic rounding comes from in a compressor. Not a plugin: each method
// that rounds by chance compiles it into itself.
#pragma once

#include <penstock/views.hpp>

#include <kernels/random_uniform.hpp>

namespace penstock::plugins {

// The key of this item's rounding in this step: another on each rank and on each leg of a route, so
// that errors of several roundings are independent. Elements count from the start of the gradient
// (item.c().first + i), whatever part of it the item is.
inline kernels::RandomKey rounding_key(const sdk::Call& call, const sdk::Item& item) {
  return kernels::random_key({call.step->seed, item.c().gradient,
                              kernels::stream_of_step(kernels::kStreamRounding, call.step->index),
                              uint64_t{item.c().leg} << 32 | call.step->rank});
}

}  // namespace penstock::plugins
