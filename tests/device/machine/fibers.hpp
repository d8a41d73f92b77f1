// Runs a kernel: its blocks one after the other or by twos, the threads of each as fibers. What a
// thread of a kernel sees of its place is static, so only one thread of the process may be in here
// at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

namespace penstock::simulated {

// From here on threads and blocks run in orders that follow from `seed`.
void seed_order_of_threads(uint64_t seed);

// One dimension each, and whole warps: more than that is not simulated.
bool grid_is_valid(dim3 grid, dim3 block);
void run_grid(dim3 grid, dim3 block, const std::function<void()>& thread);

}  // namespace penstock::simulated
