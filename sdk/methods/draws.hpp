// Random numbers of methods that round at random.
#pragma once

#include <kernels/random_uniform.hpp>
#include <penstock/views.hpp>

namespace penstock::sdk {

// The random key of this item's rounding in this step. It differs on each rank and each leg of a
// route, so that the errors of several roundings are independent. Elements count from the start of
// the gradient (item.c().first + i), even if the item is a part of the gradient.
inline kernels::RandomKey rounding_key(const Call& call, const Item& item) {
  return kernels::random_key({call.step->seed, item.c().gradient,
                              kernels::stream_of_step(kernels::kStreamRounding, call.step->index),
                              uint64_t{item.c().leg} << 32 | call.step->rank});
}

// The random numbers of elements `first`, `first` + 1, ... of a gradient.
struct Draws {
  kernels::RandomKey key;
  uint64_t first;
};

}  // namespace penstock::sdk
